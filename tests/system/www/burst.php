<?php
// ?dir=…&id=…: leaves a file dir/id.started.PID and waits for dir/id.go; any
// number of workers may run it at once.
$base = $_GET['dir'] . '/' . $_GET['id'];
touch("$base.started." . getmypid());
for ($i = 0; $i < 6000 && !file_exists("$base.go"); $i++) {
	usleep(20000);
	clearstatcache();
}
echo getmypid();
