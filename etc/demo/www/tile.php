<?php
// One tile of the picture, as SVG, and in the headers how it came to be: which
// worker painted it, how long the request waited for that worker and how long
// the painting took. tile.php?of=144&tile=17&seed=5&work=20

declare(strict_types=1);

require __DIR__ . '/scene.php';

const GRIDS = [1 => [1, 1], 8 => [4, 2], 32 => [8, 4], 144 => [16, 9]];
const WORK_MAX_MS = 1000;

function fail(string $why): never
{
	http_response_code(400);
	header('Content-Type: text/plain; charset=utf-8');
	exit($why . "\n");
}

function number(string $name, int $default, int $min, int $max): int
{
	if (!isset($_GET[$name])) {
		return $default;
	}
	$value = filter_var($_GET[$name], FILTER_VALIDATE_INT, ['options' => ['min_range' => $min, 'max_range' => $max]]);
	if ($value === false) {
		fail("$name must be a whole number from $min to $max");
	}
	return $value;
}

// A number that the server says; anything else (or nothing, behind another
// server) is left out of the answer rather than guessed.
function told(string $name): ?int
{
	$value = filter_var($_SERVER[$name] ?? null, FILTER_VALIDATE_INT, ['options' => ['min_range' => 0]]);
	return $value === false ? null : $value;
}

$began_us = hrtime(true) / 1000;
$of = number('of', 144, 1, 144);
if (!isset(GRIDS[$of])) {
	fail('of must be one of ' . implode(', ', array_keys(GRIDS)));
}
[$columns, $rows] = GRIDS[$of];
$tile = number('tile', 0, 0, $of - 1);
$seed = number('seed', 1, 0, 999999);
$work_ms = number('work', 20, 0, WORK_MAX_MS);

$svg = scene_tile($seed, $tile % $columns, intdiv($tile, $columns), $columns, $rows);

// What is left of the time is waited for, as for a database's answer.
$left_us = (int) ($work_ms * 1000 - (hrtime(true) / 1000 - $began_us));
if ($left_us > 0) {
	usleep($left_us);
}
$run_us = (int) (hrtime(true) / 1000 - $began_us);

$facts = [
	'Worker' => getmypid(),
	'Run-Us' => $run_us,
	'Queue-Wait-Us' => told('H2FPM_QUEUE_WAIT_US'),
	'Queue-Length' => told('H2FPM_QUEUE_LENGTH'),
	'Connection' => told('REMOTE_PORT'),
];
foreach ($facts as $name => $value) {
	if ($value !== null) {
		header("X-Tile-$name: $value");
	}
}
// The same for the browser's own network panel.
header(sprintf('Server-Timing: queue;dur=%.3f, php;dur=%.3f', ($facts['Queue-Wait-Us'] ?? 0) / 1000, $run_us / 1000));
header('Content-Type: image/svg+xml');
header('Cache-Control: no-store');
header('X-Content-Type-Options: nosniff');
header("Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'");
echo $svg;
