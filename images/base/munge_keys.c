/*
 * Library for Slurm's munge plugins. It decodes a credential that was signed with any valid key.
 *
 * The daemon munged has only one key. Pods do not switch to a new key at exactly the same moment.
 * Some messages with credentials of the previous key also arrive after the switch. Slurm does not
 * repeat a refused message. If the message reports the end of a batch job, slurmctld shows the job
 * as running for half an hour, and then starts the job again. So the script `munged` runs one
 * munged for each valid key, and this library asks all of them.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <munge.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Each munged listens on `<time of its key>SUFFIX`, in the directory of the usual socket. */
#define SUFFIX ".socket"

typedef munge_err_t decode_function(const char *credential, munge_ctx_t ctx, void **data, int *size,
				    uid_t *uid, gid_t *gid);

struct request {
	decode_function *decode;
	const char *credential;
	munge_ctx_t ctx;
	void **data;
	int *size;
	uid_t *uid;
	gid_t *gid;
};

static munge_err_t ask(const struct request *r, const char *socket)
{
	munge_err_t result = munge_ctx_set(r->ctx, MUNGE_OPT_SOCKET, socket);

	if (result != EMUNGE_SUCCESS)
		return result;
	return r->decode(r->credential, r->ctx, r->data, r->size, r->uid, r->gid);
}

static bool is_of_a_key(const char *name)
{
	size_t length = strlen(name);

	return length > strlen(SUFFIX) && strcmp(name + length - strlen(SUFFIX), SUFFIX) == 0;
}

/* Asks one munged after the other, until a munged has the credential's key. Returns its answer. */
static munge_err_t ask_all(const struct request *r, const char *folder)
{
	munge_err_t result = EMUNGE_CRED_INVALID;
	DIR *directory = opendir(folder);
	struct dirent *entry;
	char socket[PATH_MAX];

	if (!directory)
		return result;
	while ((entry = readdir(directory))) {
		if (!is_of_a_key(entry->d_name) || snprintf(socket, sizeof(socket), "%s/%s", folder,
							    entry->d_name) >= (int)sizeof(socket))
			continue;
		result = ask(r, socket);
		/* With EMUNGE_SOCKET, this munged is starting or has just ended. */
		if (result != EMUNGE_CRED_INVALID && result != EMUNGE_SOCKET)
			break;
	}
	closedir(directory);
	return result;
}

munge_err_t munge_decode(const char *credential, munge_ctx_t ctx, void **data, int *size,
			 uid_t *uid, gid_t *gid)
{
	struct request r = {(decode_function *)dlsym(RTLD_NEXT, "munge_decode"),
			    credential, ctx, data, size, uid, gid};
	munge_err_t result = r.decode(credential, ctx, data, size, uid, gid);
	char usual[PATH_MAX], folder[PATH_MAX], *path = NULL, *name;

	if (result != EMUNGE_CRED_INVALID ||
	    munge_ctx_get(ctx, MUNGE_OPT_SOCKET, &path) != EMUNGE_SUCCESS || !path ||
	    snprintf(usual, sizeof(usual), "%s", path) >= (int)sizeof(usual))
		return result;
	strcpy(folder, usual);
	name = strrchr(folder, '/');
	if (!name)
		return result;
	*name = '\0';
	result = ask_all(&r, folder);
	if (result == EMUNGE_CRED_INVALID || result == EMUNGE_SOCKET)
		return ask(&r, usual);
	munge_ctx_set(ctx, MUNGE_OPT_SOCKET, usual);
	return result;
}
