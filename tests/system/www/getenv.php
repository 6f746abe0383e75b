<?php
// ?name=X: what getenv() says, of the request and of the process alone.
echo json_encode([getenv($_GET['name']), getenv($_GET['name'], true), $_SERVER[$_GET['name']] ?? null]);
