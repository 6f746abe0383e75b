<?php
// Never ends by itself.
for (;;)
	usleep(10000);
