<?php
// ?name=memory_limit&set=…: a setting, after an attempt to change it.
if (isset($_GET['set']))
	ini_set($_GET['name'], $_GET['set']);
echo var_export(ini_get($_GET['name']), true);
