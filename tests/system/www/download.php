<?php
// ?bytes=…&seed=…: a pattern that a reader can make too: blocks of the
// sha256 of "seed:n", 32 bytes each.
$bytes = (int)$_GET['bytes'];
$seed = $_GET['seed'] ?? 'x';
header('Content-Type: application/octet-stream');
header("Content-Length: $bytes");
while (ob_get_level())
	ob_end_flush();
$block = '';
for ($n = 0; $n < 2048; $n++)
	$block .= hash('sha256', "$seed:$n", true);
for ($sent = 0; $sent < $bytes; $sent += strlen($part)) {
	$part = substr($block, 0, $bytes - $sent);
	echo $part;
}
