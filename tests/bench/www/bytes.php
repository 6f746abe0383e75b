<?php
// ?n=…: as many bytes, in parts as they come from a database or a file.
while (ob_get_level())
	ob_end_flush();
$part = str_repeat('0123456789abcdef', 4096);
for ($left = (int)$_GET['n']; $left > 0; $left -= strlen($part))
	echo $left < strlen($part) ? substr($part, 0, $left) : $part;
