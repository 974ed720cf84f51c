#ifndef CISTERN_TESTS_STORIES_H
#define CISTERN_TESTS_STORIES_H

/* Each returns 0, or the line of what did not hold. Two simulated devices. */

#ifdef __cplusplus
extern "C" {
#endif

int story_random_states(void);
int story_random_fills(void);
int story_nvtx(void);
int story_blas(void);
int story_memory(void);
int story_processes(void);
int story_broadcasts(void);
int story_sums_and_parts(void);
int story_tensors(void);
int story_errors(void);
int story_versions(void);
int story_sizes_of_structs(void);
int story_devices(void);
int story_streams_and_events(void);
int story_blocks(void);
int story_out_of_memory(void);
int story_pools(void);
int story_sent_memory(void);
int story_shared_descriptors(void);
int story_statistics(void);
int story_scopes(void);
int story_snapshots(void);
int story_without_exceptions(void);

#ifdef __cplusplus
}
#endif

#endif
