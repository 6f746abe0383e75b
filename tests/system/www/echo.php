<?php
// What PHP sees of a request, as JSON.
header('Content-Type: application/json');
echo json_encode([
	'server' => $_SERVER,
	'get' => $_GET,
	'post' => $_POST,
	'cookie' => $_COOKIE,
	'body' => base64_encode(file_get_contents('php://input')),
	'getenv' => array_map(null, getenv()),
	'cwd' => getcwd(),
	'pid' => getmypid(),
], JSON_INVALID_UTF8_SUBSTITUTE);
