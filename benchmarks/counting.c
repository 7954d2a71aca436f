/* Tells callgrind which steps to count. */
#include <valgrind/callgrind.h>

void counting_begins(void)
{
    CALLGRIND_START_INSTRUMENTATION;
    CALLGRIND_ZERO_STATS;
}

void counting_ends(void)
{
    CALLGRIND_DUMP_STATS;
    CALLGRIND_STOP_INSTRUMENTATION;
}
