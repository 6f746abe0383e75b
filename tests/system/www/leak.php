<?php
// ?mb=…: keeps so much memory for as long as the process lives (needs FFI).
$bytes = (int)$_GET['mb'] << 20;
if ($bytes > 0) {
	$kept = FFI::new("char[$bytes]", false, true);
	FFI::memset($kept, 1, $bytes);
}
echo getmypid();
