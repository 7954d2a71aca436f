/* Several threads for one piece of work.
 *
 * Best are those that the framework keeps for its own operations: they are awake in the middle of a training step, when a
 * thread that is started would have to fight for a core with them. OpenMP's runtime is loaded with the framework and has one
 * entry for all compilers; 0 asks for as many threads as the framework's operations get, so its pool is never resized.
 * A pool does not survive a fork (data loaders fork). There, and where there is no OpenMP, threads live for one call. */
#ifndef TENSONDE_TEAM_H
#define TENSONDE_TEAM_H

#include <pthread.h>

#if !defined(_WIN32)
#include <dlfcn.h>
#endif

enum { MAX_THREADS = 64 };

typedef void (*Work)(void *);

static int forked;

static void team_forked(void) { forked = 1; }

/* Once, when the module is loaded. */
static void team_prepare(void) { (void)pthread_atfork(NULL, NULL, team_forked); }

typedef struct {
    Work work;
    void *argument;
} Errand;

static void *run_errand(void *errand)
{
    ((Errand *)errand)->work(((Errand *)errand)->argument);
    return NULL;
}

/* `work` must do everything that is left to do, however many threads call it at once. */
static void team_run(Work work, void *argument, int threads)
{
    static void (*pool)(Work, void *, unsigned, unsigned);
    if (!pool) {
        void *found = dlsym(RTLD_DEFAULT, "GOMP_parallel");
        memcpy(&pool, &found, sizeof pool); /* C has no cast from an object's pointer to a function's */
    }
    if (pool && !forked) {
        pool(work, argument, 0, 0);
        return;
    }
    Errand errand = {work, argument};
    pthread_t others[MAX_THREADS];
    int started = 0;
    threads = threads < MAX_THREADS ? threads : MAX_THREADS;
    while (started < threads - 1 && pthread_create(&others[started], NULL, run_errand, &errand) == 0)
        started++;
    work(argument);
    for (int i = 0; i < started; i++)
        pthread_join(others[i], NULL);
}

#endif
