<?php
usleep((int) ($_GET['ms'] ?? 50) * 1000);
echo "done\n";
