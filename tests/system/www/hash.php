<?php
// The body's length and sha256, read as it comes.
$in = fopen('php://input', 'rb');
$hash = hash_init('sha256');
$bytes = 0;
while (!feof($in)) {
	$part = fread($in, 65536);
	$bytes += strlen($part);
	hash_update($hash, $part);
}
echo $bytes, ' ', hash_final($hash);
