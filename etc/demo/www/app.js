'use strict';
// Asks for all tiles at once, shows each as it comes, and draws who made it
// when. Every figure comes from the answers' headers and the browser's clock;
// all text reaches the page as text.

const COLUMNS = { 1: 1, 8: 4, 32: 8, 144: 16 };
const HEAT = [[43, 168, 160], [111, 123, 240], [224, 86, 143], [242, 149, 60]];

const $ = id => document.getElementById(id);
let run = 0; // the run that may still touch the page

function element(tag, className, text) {
	const made = document.createElement(tag);
	if (className)
		made.className = className;
	if (text !== undefined)
		made.textContent = text;
	return made;
}

// 0 (first) to 1 (last) as a colour.
function heat(part) {
	const at = Math.min(Math.max(part, 0), 1) * (HEAT.length - 1);
	const low = Math.min(Math.floor(at), HEAT.length - 2);
	const mixed = HEAT[low].map((c, i) => Math.round(c + (HEAT[low + 1][i] - c) * (at - low)));
	return `rgb(${mixed.join(' ')})`;
}

function ms(value, digits = 0) {
	return value === null || Number.isNaN(value) ? '–' : value.toFixed(digits);
}

function median(values) {
	const sorted = [...values].sort((a, b) => a - b);
	return sorted.length ? sorted[sorted.length >> 1] : null;
}

function header(answer, name, scale = 1) {
	const text = answer.headers.get('X-Tile-' + name);
	return text === null ? null : Number(text) / scale;
}

async function fetchTile(tile, began) {
	const answer = await fetch(tile.url, { cache: 'no-store' });
	const blob = await answer.blob();
	if (!answer.ok)
		throw new Error(`tile ${tile.number}: HTTP ${answer.status}`);
	Object.assign(tile, {
		arrived: performance.now() - began,
		worker: header(answer, 'Worker'),
		wait: header(answer, 'Queue-Wait-Us', 1000),
		length: header(answer, 'Queue-Length'),
		php: header(answer, 'Run-Us', 1000),
		connection: header(answer, 'Connection'),
	});
	return blob;
}

function showTile(tile, blob) {
	const url = URL.createObjectURL(blob);
	tile.image.onload = tile.image.onerror = () => URL.revokeObjectURL(url);
	tile.image.src = url;
	tile.label.textContent = ms(tile.arrived);
	tile.box.title = `tile ${tile.number}: here after ${ms(tile.arrived)} ms, worker ${tile.worker ?? '–'}`;
	tile.box.classList.add('here');
}

function layTiles(of, work, seed, mine) {
	const grid = $('tiles');
	grid.replaceChildren();
	grid.style.setProperty('--columns', COLUMNS[of]);
	grid.dataset.of = of;
	return Array.from({ length: of }, (_, i) => {
		const tile = { number: i, box: element('div', 'tile'), image: element('img'), label: element('b') };
		tile.url = `tile.php?of=${of}&tile=${i}&seed=${seed}&work=${work}&run=${mine}`;
		tile.image.alt = '';
		tile.box.append(tile.image, tile.label);
		grid.append(tile.box);
		return tile;
	});
}

function block(className, from, to, total, colour) {
	const made = element('i', className);
	made.style.left = `${from / total * 100}%`;
	made.style.width = `${Math.max(to - from, 0) / total * 100}%`;
	if (colour)
		made.style.background = colour;
	return made;
}

// Each tile's colour: from the first arrival to the last.
function colour(tiles) {
	const first = tiles[0].arrived;
	const span = tiles[tiles.length - 1].arrived - first || 1;
	for (const tile of tiles) {
		tile.heat = heat((tile.arrived - first) / span);
		tile.box.style.setProperty('--heat', tile.heat);
	}
}

function drawLanes(tiles, total) {
	const workers = new Map();
	for (const tile of tiles)
		workers.set(tile.worker, [...workers.get(tile.worker) ?? [], tile]);
	const lanes = [...workers].sort((a, b) => a[0] - b[0]).map(([worker, painted]) => {
		const lane = element('div', 'lane');
		const track = element('div', 'track');
		for (const tile of painted)
			track.append(block('', tile.arrived - (tile.php ?? 0), tile.arrived, total, tile.heat));
		lane.append(element('span', '', `pid ${worker ?? '–'}`), track, element('span', '', painted.length));
		return lane;
	});
	$('lanes').replaceChildren(...lanes);
}

function tickStep(total) {
	for (let step = 1; ; step *= 10)
		for (const factor of [1, 2, 5])
			if (total / (step * factor) <= 8)
				return step * factor;
}

function drawWaterfall(tiles, total) {
	const box = $('waterfall');
	const bars = tiles.map(tile => {
		const bar = element('div', 'bar');
		const start = Math.max(tile.arrived - (tile.php ?? 0), 0);
		const queued = Math.max(start - (tile.wait ?? 0), 0);
		bar.append(block('rest', tile.sent, queued, total), block('wait', queued, start, total),
			block('', start, tile.arrived, total, tile.heat));
		return bar;
	});
	const ticks = [];
	for (let at = 0, step = tickStep(total); at < total * 0.96; at += step) {
		const tick = element('div', 'tick');
		tick.style.left = `${at / total * 100}%`;
		tick.append(element('span', '', `${at} ms`));
		ticks.push(tick);
	}
	box.style.setProperty('--bar', tiles.length > 40 ? '3px' : tiles.length > 8 ? '9px' : '20px');
	box.replaceChildren(...ticks, ...bars);
}

function fillTable(tiles) {
	$('rows').replaceChildren(...tiles.map(tile => {
		const row = element('tr');
		const cells = [tile.worker ?? '–', tile.length ?? '–', ms(tile.wait, 1), ms(tile.php, 1), ms(tile.arrived, 1)];
		const name = element('th', '', tile.number + 1);
		name.scope = 'row';
		row.append(name, ...cells.map(text => element('td', '', text)));
		return row;
	}));
}

function protocolOf(mine) {
	const used = performance.getEntriesByType('resource')
		.filter(entry => entry.name.endsWith(`&run=${mine}`)).map(entry => entry.nextHopProtocol);
	return [...new Set(used)].filter(Boolean).join(', ') || '–';
}

function showFacts(tiles, total, mine) {
	const waits = tiles.map(tile => tile.wait).filter(wait => wait !== null);
	const lengths = tiles.map(tile => tile.length).filter(length => length !== null);
	const workers = new Set(tiles.map(tile => tile.worker)).size;
	const connections = new Set(tiles.map(tile => tile.connection)).size;
	const protocol = protocolOf(mine);
	const longest = waits.length ? Math.max(...waits) : null;
	$('fact-total').textContent = ms(total);
	$('fact-workers').textContent = workers;
	$('fact-wait').textContent = waits.length ? `${ms(median(waits), 1)} · ${ms(longest, 1)}` : '–';
	$('fact-length').textContent = lengths.length ? Math.max(...lengths) : '–';
	$('fact-protocol').textContent = `${protocol} · ${connections}`;
	Object.assign(document.body.dataset, { workers, protocol, connections, arrived: tiles.length });
	$('status').textContent = `${tiles.length} of ${tiles.length} ${tiles.length === 1 ? 'tile' : 'tiles'} arrived in `
		+ `${ms(total)} ms, painted by ${workers} PHP ${workers === 1 ? 'worker' : 'workers'}.`;
}

function setState(state, text) {
	document.body.dataset.state = state;
	if (text !== undefined)
		$('status').textContent = text;
}

async function load() {
	const mine = ++run;
	const choice = new FormData($('controls'));
	const of = Number(choice.get('of'));
	const seed = Math.floor(Math.random() * 1e6);
	const tiles = layTiles(of, Number(choice.get('work')), seed, mine);
	setState('loading', `Asking for ${of} ${of === 1 ? 'tile' : 'tiles'}…`);
	Object.assign(document.body.dataset, { of, arrived: 0 });
	$('headline-count').textContent = of === 1 ? '1 tile' : `${of} tiles`;
	performance.clearResourceTimings();
	performance.setResourceTimingBufferSize(1000);

	const began = performance.now();
	const arrivals = await Promise.allSettled(tiles.map(async tile => {
		tile.sent = performance.now() - began;
		try {
			const blob = await fetchTile(tile, began);
			if (mine === run)
				showTile(tile, blob);
		} catch (error) {
			tile.box.classList.add('failed');
			throw error;
		}
	}));
	if (mine === run)
		finish(tiles, arrivals.filter(arrival => arrival.status === 'rejected'), mine);
}

function finish(tiles, failures, mine) {
	const arrived = tiles.filter(tile => tile.arrived !== undefined).sort((a, b) => a.arrived - b.arrived);
	if (arrived.length) {
		const total = arrived[arrived.length - 1].arrived;
		colour(arrived);
		drawLanes(arrived, total);
		drawWaterfall(arrived, total);
		fillTable([...arrived].sort((a, b) => a.number - b.number));
		showFacts(arrived, total, mine);
	}
	if (failures.length)
		setState('error', `${failures.length} of ${tiles.length} tiles failed: ${failures[0].reason.message}`);
	else
		setState('done');
}

function show() {
	document.body.dataset.show = new FormData($('controls')).get('show');
}

$('controls').addEventListener('submit', event => {
	event.preventDefault();
	load();
});
$('controls').addEventListener('change', event => event.target.name === 'show' ? show() : load());
show();
load();
