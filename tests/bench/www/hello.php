<?php
echo "Hello\n";
