<?php
// ?dir=…&ignore=0|1: writes output and a line in dir/ticks, until it is ended.
ignore_user_abort((bool)($_GET['ignore'] ?? 0));
while (ob_get_level())
	ob_end_flush();
$max = (int)($_GET['max'] ?? 400);
for ($i = 0; $i < $max; $i++) {
	file_put_contents($_GET['dir'] . '/ticks', "$i\n", FILE_APPEND);
	echo "$i\n";
	flush();
	usleep(20000);
}
file_put_contents($_GET['dir'] . '/finished', 'yes');
