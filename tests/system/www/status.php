<?php
http_response_code((int)$_GET['code']);
header('X-Test: yes');
echo 'status ', $_GET['code'];
