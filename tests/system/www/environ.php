<?php
// What a script sees of its process's environment, by every way there is, and
// what a program sees that it runs.
exec('env', $child);
echo json_encode([
	'getenv' => array_map(fn ($name) => getenv($name, true), array_combine($_GET['names'], $_GET['names'])),
	'server' => array_intersect_key($_SERVER, array_flip($_GET['names'])),
	'child' => $child,
]);
