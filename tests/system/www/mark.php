<?php
// ?dir=…&id=…: proves that it ran by a line in dir/marks.
file_put_contents($_GET['dir'] . '/marks', $_GET['id'] . "\n", FILE_APPEND | LOCK_EX);
usleep(1000 * (int)($_GET['ms'] ?? 0));
echo 'marked';
