<?php
// When it began, in which process; then ?ms=… more.
$began = microtime(true);
usleep((int) ($_GET['ms'] ?? 200) * 1000);
printf("%.6f %d\n", $began, getmypid());
