<?php
// ?file=…: whether opcache's memory holds that file's code, which process says
// so, since when that memory is there, and what a preload script has defined.
$status = opcache_get_status(false);
echo json_encode([
	'pid' => getmypid(),
	'cached' => opcache_is_script_cached(__DIR__ . '/' . ($_GET['file'] ?? 'hello.php')),
	'start_time' => $status['opcache_statistics']['start_time'] ?? null,
	'preloaded' => function_exists('preloaded_by_the_test') ? preloaded_by_the_test() : null,
]);
