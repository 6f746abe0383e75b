#include "fpm/priv.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The highest number is (uid_t)-1, which means "no change" to the kernel. */
static bool parse_id(const char *text, unsigned *id)
{
	unsigned long long value;
	size_t digits = strspn(text, "0123456789");

	if (digits == 0 || digits > 10 || text[digits] != '\0')
		return false;
	value = strtoull(text, NULL, 10);
	*id = (unsigned)value;
	return value < 0xffffffffULL;
}

bool priv_find_user(const char *user, uid_t *uid, gid_t *gid)
{
	const struct passwd *pw;
	unsigned id;
	bool number = parse_id(user, &id);

	pw = number ? getpwuid((uid_t)id) : getpwnam(user);
	if (pw == NULL && !number)
		return false;
	*uid = pw != NULL ? pw->pw_uid : (uid_t)id;
	if (gid != NULL)
		*gid = pw != NULL ? pw->pw_gid : (gid_t)-1;
	return true;
}

bool priv_find_group(const char *group, gid_t *gid)
{
	const struct group *gr;
	unsigned id;

	if (parse_id(group, &id)) {
		*gid = (gid_t)id;
		return true;
	}
	gr = getgrnam(group);
	if (gr == NULL)
		return false;
	*gid = gr->gr_gid;
	return true;
}

bool priv_resolve(struct priv_identity *who, const char *user, const char *group, char *reason, size_t reason_size)
{
	const struct passwd *pw;

	*who = (struct priv_identity){.uid = geteuid(), .gid = getegid()};
	if (user != NULL && !priv_find_user(user, &who->uid, &who->gid)) {
		snprintf(reason, reason_size, "cannot get uid for user '%s'", user);
		return false;
	}
	if (group != NULL && !priv_find_group(group, &who->gid)) {
		snprintf(reason, reason_size, "cannot get gid for group '%s'", group);
		return false;
	}
	if (who->gid == (gid_t)-1) {
		snprintf(reason, reason_size, "user %s has no entry and so no group: please set group", user);
		return false;
	}
	pw = getpwuid(who->uid);
	if (pw != NULL && strlen(pw->pw_name) < sizeof(who->name))
		memcpy(who->name, pw->pw_name, strlen(pw->pw_name) + 1);
	return true;
}

static bool set_groups(const struct priv_identity *who)
{
	if (who->name[0] != '\0')
		return initgroups(who->name, who->gid) == 0;
	return setgroups(1, &who->gid) == 0;
}

/* Raw: what of libcap would be used is not worth the dependency. The first
 * word has all capabilities up to 31. */
struct capabilities {
	struct __user_cap_header_struct header;
	struct __user_cap_data_struct words[_LINUX_CAPABILITY_U32S_3];
};

_Static_assert(CAP_SYS_CHROOT < 32, "in the first word");

static uint32_t kept_capabilities(const struct priv_identity *who)
{
	return who->keeps_chroot ? 1U << CAP_SYS_CHROOT : 0;
}

/* Ambient, it survives the exec of php-cgi, whose forks need it. */
static bool set_capabilities(const struct priv_identity *who)
{
	uint32_t kept = kept_capabilities(who);
	struct capabilities caps = {.header = {.version = _LINUX_CAPABILITY_VERSION_3},
				    .words = {{.effective = kept, .permitted = kept, .inheritable = kept}}};

	if (prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0) != 0 || prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0 ||
	    syscall(SYS_capset, &caps.header, caps.words) != 0)
		return false;
	return kept == 0 || prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SYS_CHROOT, 0, 0) == 0;
}

/* True when these are what is meant, no more and no less. */
static bool are_capabilities_right(const struct priv_identity *who)
{
	const struct __user_cap_data_struct kept = {kept_capabilities(who), kept_capabilities(who),
						    kept_capabilities(who)};
	struct capabilities caps = {.header = {.version = _LINUX_CAPABILITY_VERSION_3}};

	if (syscall(SYS_capget, &caps.header, caps.words) != 0)
		return false;
	if (memcmp(&caps.words[0], &kept, sizeof(kept)) != 0)
		return false;
	for (int cap = 0, is; (is = prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, cap, 0, 0)) >= 0; cap++) {
		if (is != (who->keeps_chroot && cap == CAP_SYS_CHROOT))
			return false;
	}
	return caps.words[1].effective == 0 && caps.words[1].permitted == 0 && caps.words[1].inheritable == 0;
}

/* True when nothing of the old identity is left and none can be had back. */
static bool is_dropped(const struct priv_identity *who)
{
	uid_t ruid, euid, suid;
	gid_t rgid, egid, sgid;

	if (getresuid(&ruid, &euid, &suid) != 0 || getresgid(&rgid, &egid, &sgid) != 0)
		return false;
	if (ruid != who->uid || euid != who->uid || suid != who->uid)
		return false;
	if (rgid != who->gid || egid != who->gid || sgid != who->gid)
		return false;
	if (who->uid == 0)
		return true;
	if (setuid(0) == 0 || seteuid(0) == 0 || !are_capabilities_right(who))
		return false;
	return who->gid == 0 || (setgid(0) != 0 && setegid(0) != 0);
}

bool priv_drop(const struct priv_identity *who, char *reason, size_t reason_size)
{
	const char *step = NULL;

	if (!set_groups(who))
		step = "set the groups";
	else if (who->keeps_chroot && prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0)
		step = "keep capabilities";
	else if (setresgid(who->gid, who->gid, who->gid) != 0)
		step = "set the group";
	else if (setresuid(who->uid, who->uid, who->uid) != 0)
		step = "set the user";
	else if (who->uid != 0 && !set_capabilities(who))
		step = "set the capabilities";
	if (step != NULL) {
		snprintf(reason, reason_size, "failed to %s (uid %u, gid %u): %s (%d)", step, who->uid, who->gid,
			 strerror(errno), errno);
		return false;
	}
	if (!is_dropped(who)) {
		snprintf(reason, reason_size, "privileges could be regained after becoming uid %u, gid %u", who->uid,
			 who->gid);
		return false;
	}
	return true;
}
