<?php
// ?dir=…&when=start|middle&signal=9: marks the attempt, then dies; "once": only the first time.
file_put_contents($_GET['dir'] . '/attempts', getmypid() . "\n", FILE_APPEND | LOCK_EX);
$attempts = count(file($_GET['dir'] . '/attempts'));
if (($_GET['when'] ?? 'start') === 'middle') {
	header('Content-Length: 100000');
	while (ob_get_level())
		ob_end_flush();
	echo str_repeat('m', 20000);
	flush();
	usleep(100000);
}
if (($_GET['once'] ?? '') !== '1' || $attempts === 1)
	posix_kill(getmypid(), (int)($_GET['signal'] ?? 9));
usleep(200000);
echo "survived $attempts";
