<?php
// ?bytes=…&dir=…: that much at once, then a file that says PHP is through.
while (ob_get_level())
	ob_end_flush();
echo str_repeat('b', (int)$_GET['bytes']);
flush();
file_put_contents($_GET['dir'] . '/written', 'yes');
