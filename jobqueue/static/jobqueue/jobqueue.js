// The dashboard's script. Without it everything works but the live refresh.
"use strict";
