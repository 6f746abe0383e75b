<?php
// The picture: a range of mountains over a lake, drawn from a seed, so that
// every tile of the same seed shows its own part of the same picture. Each
// tile holds only what is to be seen in it.

declare(strict_types=1);

const SCENE_WIDTH = 1600;
const SCENE_HEIGHT = 900;
const SCENE_SHORE = 690;
const SCENE_STEP = 8;

// Sky from top to horizon, the sun, the farthest and the nearest ridge.
const SCENE_LIGHTS = [
	['#1b2a5c', '#7b5ea7', '#f2a97e', '#ffe3b0', '#b7849c', '#171a33'],
	['#0e3a5e', '#2f86a6', '#bfe3d0', '#fff6d8', '#7fb0b4', '#0b2530'],
	['#2b1d52', '#a0437e', '#ff9b6a', '#ffe9a8', '#c0627f', '#1d1230'],
	['#123b4a', '#4f8f8b', '#f6d9a0', '#fffbe6', '#9db59b', '#10251f'],
	['#101a3d', '#34508f', '#9fc0ea', '#f7fbff', '#7d97c4', '#0b1228'],
];

// A fixed pseudo-random number in [0, 1) for a seed and two indexes.
function scene_random(int $seed, int $a, int $b = 0): float
{
	return hexdec(hash('murmur3a', "$seed:$a:$b")) / 4294967296.0;
}

// Smooth noise in [0, 1): random values at whole numbers, eased in between.
function scene_noise(int $seed, float $at): float
{
	$left = (int) floor($at);
	$part = $at - $left;
	$ease = $part * $part * (3 - 2 * $part);
	return scene_random($seed, $left) * (1 - $ease) + scene_random($seed, $left + 1) * $ease;
}

// The height of a ridge, about 0 to 1: octaves of noise, each half as high and
// twice as fine; folded at the middle, which makes peaks of its slopes.
function scene_ridge(int $seed, float $x, float $width, float $sharp): float
{
	$sum = 0.0;
	for ($octave = 0, $weight = 0.52; $octave < 6; $octave++, $weight *= 0.5) {
		$noise = scene_noise($seed + $octave * 31, $x / $width * 2 ** $octave);
		$peak = 1 - abs(2 * $noise - 1);
		$sum += $weight * ($peak * $sharp + $noise * (1 - $sharp));
	}
	return $sum;
}

function scene_mix(string $from, string $to, float $part): string
{
	$channels = [];
	for ($i = 1; $i < 7; $i += 2) {
		$a = hexdec(substr($from, $i, 2));
		$channels[] = (int) round($a + (hexdec(substr($to, $i, 2)) - $a) * $part);
	}
	return vsprintf('#%02x%02x%02x', $channels);
}

function scene_gradients(array $light, float $sun_x, float $sun_y): string
{
	[$top, $middle, $low, $sun, , $near] = $light;
	$water = scene_mix($low, $near, 0.35);
	$deep = scene_mix($middle, $near, 0.75);
	$shore = SCENE_SHORE;
	return <<<SVG
	<defs>
	<linearGradient id="sky" gradientUnits="userSpaceOnUse" x1="0" y1="0" x2="0" y2="$shore">
	<stop offset="0" stop-color="$top"/><stop offset=".55" stop-color="$middle"/><stop offset=".92" stop-color="$low"/>
	</linearGradient>
	<linearGradient id="lake" gradientUnits="userSpaceOnUse" x1="0" y1="$shore" x2="0" y2="900">
	<stop offset="0" stop-color="$water"/><stop offset="1" stop-color="$deep"/>
	</linearGradient>
	<radialGradient id="glow" gradientUnits="userSpaceOnUse" cx="$sun_x" cy="$sun_y" r="620">
	<stop offset="0" stop-color="$sun" stop-opacity=".85"/><stop offset=".25" stop-color="$sun" stop-opacity=".32"/>
	<stop offset="1" stop-color="$sun" stop-opacity="0"/>
	</radialGradient>
	</defs>
	SVG;
}

function scene_stars(int $seed, float $left, float $top, float $right, float $bottom): string
{
	$svg = '';
	for ($i = 0; $i < 220; $i++) {
		$x = scene_random($seed, $i, 1) * SCENE_WIDTH;
		$y = scene_random($seed, $i, 2) ** 2 * SCENE_SHORE * 0.6;
		if ($x > $left - 3 && $x < $right + 3 && $y > $top - 3 && $y < $bottom + 3) {
			$svg .= sprintf('<circle cx="%.1f" cy="%.1f" r="%.2f" opacity="%.2f"/>', $x, $y,
				0.5 + scene_random($seed, $i, 3) * 1.3, 0.25 + 0.6 * scene_random($seed, $i, 4) * (1 - $y / SCENE_SHORE));
		}
	}
	return "<g fill=\"#fff\">$svg</g>";
}

// A row of firs along the nearest ridge.
function scene_firs(int $seed, float $left, float $right, callable $height, string $colour): string
{
	$path = '';
	for ($i = (int) floor($left / 9) - 4; $i * 9 < $right + 36; $i++) {
		if (scene_noise($seed + 7, $i / 14) < 0.42) {
			continue;
		}
		$x = $i * 9 + scene_random($seed, $i, 5) * 8;
		$tall = 22 + scene_random($seed, $i, 6) * 34;
		$foot = $height($x) + 6;
		for ($storey = 0; $storey < 3; $storey++) {
			$half = $tall * (0.11 + 0.06 * $storey);
			$low = $foot - $tall * (0.62 - 0.31 * $storey);
			$path .= sprintf('M%.1f %.1fl%.1f %.1fh%.1fz', $x, $low - $tall * 0.42, $half, $tall * 0.42, -2 * $half);
		}
	}
	return "<path d=\"$path\" fill=\"$colour\"/>";
}

function scene_mountains(int $seed, array $light, float $left, float $right): string
{
	$svg = '';
	for ($layer = 0; $layer < 6; $layer++) {
		$depth = $layer / 5;
		$foot = 500 + 42 * $layer;
		$rise = 330 - 44 * $layer;
		$sharp = 0.85 - 0.12 * $layer;
		$height = fn (float $x): float => $foot + 40
			- $rise * scene_ridge($seed + 100 * $layer, $x, 460 - 40 * $layer, $sharp);
		$colour = scene_mix($light[4], $light[5], $depth ** 1.15);
		$path = '';
		for ($x = floor($left / SCENE_STEP) * SCENE_STEP - SCENE_STEP; $x <= $right + 2 * SCENE_STEP; $x += SCENE_STEP) {
			$path .= sprintf('%s%d %.1f', $path === '' ? 'M' : 'L', $x, min($height($x), SCENE_SHORE + 4));
		}
		$path .= sprintf('V%dH%dz', SCENE_SHORE, $left - SCENE_STEP * 2);
		$svg .= "<path d=\"$path\" fill=\"$colour\"/>";
		if ($layer === 5) {
			$svg .= scene_firs($seed, $left, $right, fn (float $x): float => min($height($x), SCENE_SHORE - 2), $colour);
		}
	}
	return $svg;
}

function scene_ripples(int $seed, array $light, float $sun_x, float $top, float $bottom): string
{
	$svg = '';
	for ($i = 0; $i < 90; $i++) {
		$part = $i / 90;
		$y = SCENE_SHORE + 5 + ($part ** 1.4) * (SCENE_HEIGHT - SCENE_SHORE);
		if ($y < $top - 6 || $y > $bottom + 6) {
			continue;
		}
		$wide = 30 + 150 * $part * scene_random($seed, $i, 8);
		$x = $sun_x + (scene_random($seed, $i, 9) - 0.5) * (70 + 220 * $part) - $wide / 2;
		$svg .= sprintf('<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="2" opacity="%.2f"/>',
			$x, $y, $wide, 1.2 + 2.4 * $part, 0.5 - 0.33 * $part);
	}
	return "<g fill=\"$light[3]\">$svg</g>";
}

function scene_tile(int $seed, int $column, int $row, int $columns, int $rows): string
{
	$light = SCENE_LIGHTS[$seed % count(SCENE_LIGHTS)];
	$sun_x = round(380 + 840 * scene_random($seed, 1, 20));
	$sun_y = round(225 + 70 * scene_random($seed, 2, 20));
	$width = SCENE_WIDTH / $columns;
	$height = SCENE_HEIGHT / $rows;
	[$left, $top] = [$column * $width, $row * $height];
	[$right, $bottom] = [$left + $width, $top + $height];

	$svg = sprintf('<svg xmlns="http://www.w3.org/2000/svg" viewBox="%g %g %g %g" preserveAspectRatio="none">',
		$left, $top, $width, $height);
	$svg .= scene_gradients($light, $sun_x, $sun_y);
	$svg .= '<rect width="1600" height="900" fill="url(#sky)"/>';
	if ($top < SCENE_SHORE) {
		$svg .= scene_stars($seed, $left, $top, $right, $bottom);
		$svg .= '<rect width="1600" height="900" fill="url(#glow)"/>';
		$svg .= "<circle cx=\"$sun_x\" cy=\"$sun_y\" r=\"58\" fill=\"$light[3]\"/>";
		$svg .= scene_mountains($seed, $light, $left, $right);
	}
	if ($bottom > SCENE_SHORE) {
		$svg .= sprintf('<rect y="%d" width="1600" height="%d" fill="url(#lake)"/>', SCENE_SHORE, SCENE_HEIGHT - SCENE_SHORE);
		$svg .= scene_ripples($seed, $light, $sun_x, $top, $bottom);
	}
	return $svg . '</svg>';
}
