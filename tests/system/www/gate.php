<?php
// ?dir=…&id=…: leaves a file dir/id.started with its pid and waits for dir/id.go.
$base = $_GET['dir'] . '/' . $_GET['id'];
file_put_contents("$base.tmp", getmypid() . "\n", FILE_APPEND);
rename("$base.tmp", "$base.started." . getmypid());
for ($i = 0; $i < 3000 && !file_exists("$base.go"); $i++) {
	usleep(10000);
	clearstatcache();
}
echo 'passed ', getmypid();
