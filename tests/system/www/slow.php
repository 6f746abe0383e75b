<?php
// ?ms=…: takes so long, then answers with its pid.
usleep(1000 * (int)($_GET['ms'] ?? 50));
echo getmypid();
