<?php
header('Content-Type: application/octet-stream');
while (ob_get_level()) {
	ob_end_clean();
}
readfile(__DIR__ . '/blob');
