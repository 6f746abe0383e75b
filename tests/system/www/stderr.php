<?php
// ?lines=…: so many lines to the error log, then an answer.
for ($i = 0; $i < (int)($_GET['lines'] ?? 1); $i++)
	error_log("to the error log $i");
echo 'logged';
