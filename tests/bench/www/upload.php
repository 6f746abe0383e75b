<?php
$hash = hash_init('sha256');
echo hash_update_stream($hash, fopen('php://input', 'rb')), ' ', hash_final($hash), "\n";
