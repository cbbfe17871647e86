/*
 * snapshot TABLE...: prints tables of slurmctld, one record per line, for agents/exporter.
 *
 * Each TABLE (jobs, nodes, reservations, licenses) requires one remote procedure call. The table
 * `nodes` requires a second call for the partitions. Slurm's commands would need more calls: for
 * example, squeue also loads the partitions. Tabs separate the columns. The first column is the
 * type of the record:
 *
 *   job          state, reason, partitions, account, uid, pending array tasks, eligible time, CPUs,
 *                allocated or requested TRES, first node, id and nodes (empty unless the job runs),
 *                start or expected start
 *   node         name, state, partitions, CPUs for jobs, allocated CPUs, memory, allocated memory,
 *                free memory, load, gres, allocated gres, TRES, reason, time of the reason,
 *                instance id, extra
 *   partition    name, state
 *   reservation  name, nodes, start, end
 *   license      name, total, used, free, reserved
 *
 * Memory is in MiB. Times are Unix seconds, or 0 if there is no time. The load is in hundredths. A
 * column is empty if Slurm does not know the value. Users choose some of the texts, which must not
 * end a column or a line. So this program replaces control characters by spaces.
 *
 * If a request to slurmctld fails, the program prints the reason in one line and exits with 1.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

/* libslurm exports these functions for plugins, but no installed header declares them. */
extern char *slurm_job_state_string(uint32_t state);
extern const char *slurm_job_state_reason_string(uint32_t reason);
extern char *slurm_node_state_string_complete(uint32_t state);

/*
 * Because of SHOW_MIXED, partly used nodes have the state MIXED, as in sinfo. SHOW_LOCAL excludes
 * the jobs and nodes of other clusters in a federation.
 */
static const uint16_t ALL = SHOW_ALL | SHOW_DETAIL | SHOW_MIXED | SHOW_LOCAL;

static void text(const char *value)
{
	putchar('\t');
	for (; value != NULL && *value != '\0'; value++)
		putchar((unsigned char)*value < ' ' || *value == '\x7f' ? ' ' : *value);
}

static void number(uint64_t value)
{
	printf("\t%" PRIu64, value);
}

static void known(uint64_t value, uint64_t unknown)
{
	if (value == unknown)
		putchar('\t');
	else
		number(value);
}

/* Prints a job's id in the format of squeue and sacct. */
static void id(const slurm_job_info_t *job)
{
	if (job->array_task_id != NO_VAL)
		printf("\t%" PRIu32 "_%" PRIu32, job->array_job_id, job->array_task_id);
	else if (job->het_job_id != 0)
		printf("\t%" PRIu32 "+%" PRIu32, job->het_job_id, job->het_job_offset);
	else
		number(job->job_id);
}

static int jobs(void)
{
	job_info_msg_t *found = NULL;

	if (slurm_load_jobs(0, &found, ALL) != SLURM_SUCCESS)
		return -1;
	for (uint32_t i = 0; i < found->record_count; i++) {
		const slurm_job_info_t *job = &found->job_array[i];

		fputs("job", stdout);
		text(slurm_job_state_string(job->job_state));
		text(slurm_job_state_reason_string(job->state_reason));
		text(job->partition);
		text(job->account);
		number(job->user_id);
		text(job->array_task_str);
		number((uint64_t)job->eligible_time);
		number(job->num_cpus);
		text(job->tres_alloc_str != NULL ? job->tres_alloc_str : job->tres_req_str);
		text(job->batch_host);
		/* The exporter needs these columns only for running jobs, which are few. */
		if ((job->job_state & JOB_STATE_BASE) == JOB_RUNNING) {
			id(job);
			text(job->nodes);
		} else {
			fputs("\t\t", stdout);
		}
		number((uint64_t)job->start_time);
		putchar('\n');
	}
	slurm_free_job_info_msg(found);
	return 0;
}

/*
 * Loads the partitions too, to find each node's partitions: a node does not list its partitions,
 * but a partition lists its nodes, as indexes.
 */
static int nodes_and_partitions(void)
{
	node_info_msg_t *found = NULL;
	partition_info_msg_t *partitions = NULL;

	if (slurm_load_node(0, &found, ALL) != SLURM_SUCCESS)
		return -1;
	if (slurm_load_partitions(0, &partitions, ALL) != SLURM_SUCCESS)
		return -1;
	slurm_populate_node_partitions(found, partitions);
	for (uint32_t i = 0; i < partitions->record_count; i++) {
		const partition_info_t *partition = &partitions->partition_array[i];
		const uint16_t up = partition->state_up;

		fputs("partition", stdout);
		text(partition->name);
		text(up == PARTITION_UP      ? "up"
		     : up == PARTITION_DOWN  ? "down"
		     : up == PARTITION_DRAIN ? "drain"
					     : "inactive");
		putchar('\n');
	}
	for (uint32_t i = 0; i < found->record_count; i++) {
		const node_info_t *node = &found->node_array[i];
		uint16_t cpus = 0;
		uint64_t memory = 0;

		/* Skip empty entries: nodes that were deleted or do not exist yet. */
		if (node->name == NULL || *node->name == '\0')
			continue;
		slurm_get_select_nodeinfo(node->select_nodeinfo, SELECT_NODEDATA_SUBCNT,
					  NODE_STATE_ALLOCATED, &cpus);
		slurm_get_select_nodeinfo(node->select_nodeinfo, SELECT_NODEDATA_MEM_ALLOC,
					  NODE_STATE_ALLOCATED, &memory);
		fputs("node", stdout);
		text(node->name);
		/* Do not free the text of the state, because the program ends soon. */
		text(slurm_node_state_string_complete(node->node_state));
		text(node->partitions);
		number(node->cpus_efctv);
		number(cpus);
		number(node->real_memory);
		number(memory);
		known(node->free_mem, NO_VAL64);
		known(node->cpu_load, NO_VAL);
		text(node->gres);
		text(node->gres_used);
		text(node->tres_fmt_str);
		text(node->reason);
		number((uint64_t)node->reason_time);
		text(node->instance_id);
		text(node->extra);
		putchar('\n');
	}
	slurm_free_partition_info_msg(partitions);
	slurm_free_node_info_msg(found);
	return 0;
}

static int reservations(void)
{
	reserve_info_msg_t *found = NULL;

	if (slurm_load_reservations(0, &found) != SLURM_SUCCESS)
		return -1;
	for (uint32_t i = 0; i < found->record_count; i++) {
		const reserve_info_t *reservation = &found->reservation_array[i];

		fputs("reservation", stdout);
		text(reservation->name);
		number(reservation->node_cnt);
		number((uint64_t)reservation->start_time);
		number((uint64_t)reservation->end_time);
		putchar('\n');
	}
	slurm_free_reservation_info_msg(found);
	return 0;
}

static int licenses(void)
{
	license_info_msg_t *found = NULL;

	if (slurm_load_licenses(0, &found, ALL) != SLURM_SUCCESS)
		return -1;
	for (uint32_t i = 0; i < found->num_lic; i++) {
		const slurm_license_info_t *license = &found->lic_array[i];

		fputs("license", stdout);
		text(license->name);
		number(license->total);
		number(license->in_use);
		number(license->available);
		number(license->reserved);
		putchar('\n');
	}
	slurm_free_license_info_msg(found);
	return 0;
}

static const struct {
	const char *name;
	int (*print)(void);
} TABLES[] = {
	{"jobs", jobs},
	{"nodes", nodes_and_partitions},
	{"reservations", reservations},
	{"licenses", licenses},
};

static int print_table(const char *name)
{
	for (size_t i = 0; i < sizeof(TABLES) / sizeof(*TABLES); i++) {
		if (strcmp(TABLES[i].name, name) != 0)
			continue;
		if (TABLES[i].print() != 0) {
			fprintf(stderr, "snapshot: %s: %s\n", name, slurm_strerror(errno));
			return 1;
		}
		return 0;
	}
	fprintf(stderr, "snapshot: %s: expected jobs, nodes, reservations or licenses\n", name);
	return 1;
}

int main(int argc, char **argv)
{
	slurm_init(NULL);
	for (int i = 1; i < argc; i++)
		if (print_table(argv[i]) != 0)
			return 1;
	if (fflush(stdout) != 0 || ferror(stdout)) {
		perror("snapshot");
		return 1;
	}
	return 0;
}
