#include "driver/ahead.h"

_Atomic snib__time snib__ahead;
