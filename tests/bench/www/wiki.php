<?php
// Debian's DokuWiki, with configuration and pages of the measurement's own.
define('DOKU_INC', '/usr/share/dokuwiki/');
define('DOKU_CONF', __DIR__ . '/wiki/conf/');
require DOKU_INC . 'doku.php';
