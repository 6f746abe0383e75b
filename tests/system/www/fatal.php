<?php
undefined_function_of_the_test();
