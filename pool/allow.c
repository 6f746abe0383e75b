#include "pool/allow.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void map_v4(struct in6_addr *out, const struct in_addr *v4)
{
	memset(out, 0, sizeof *out);
	out->s6_addr[10] = 0xff;
	out->s6_addr[11] = 0xff;
	memcpy(&out->s6_addr[12], v4, 4);
}

static bool parse_address(const char *text, struct in6_addr *out)
{
	struct in_addr v4;

	if (inet_pton(AF_INET, text, &v4) == 1) {
		map_v4(out, &v4);
		return true;
	}
	return inet_pton(AF_INET6, text, out) == 1;
}

static bool add_entry(struct allow *allow, const char *entry)
{
	struct in6_addr *grown = realloc(allow->addresses, (allow->count + 1) * sizeof *grown);

	if (!grown)
		return false;
	allow->addresses = grown;
	if (!parse_address(entry, &grown[allow->count]))
		return false;
	allow->count++;
	return true;
}

bool allow_init(struct allow *allow, const char *list, const char **bad)
{
	static char entry[INET6_ADDRSTRLEN + 16];

	*allow = (struct allow){.any = list == NULL};
	while (list && *list) {
		list += strspn(list, ", \t");
		size_t len = strcspn(list, ", \t");
		if (len == 0)
			break;
		snprintf(entry, sizeof entry, "%.*s", (int)len, list);
		if (len >= sizeof entry || !add_entry(allow, entry)) {
			*bad = entry;
			allow_fini(allow);
			return false;
		}
		list += len;
	}
	return true;
}

void allow_fini(struct allow *allow)
{
	free(allow->addresses);
	*allow = (struct allow){0};
}

bool allow_check(const struct allow *allow, const struct sockaddr_storage *peer)
{
	struct in6_addr address;

	if (allow->any || (peer->ss_family != AF_INET && peer->ss_family != AF_INET6))
		return true;
	if (peer->ss_family == AF_INET)
		map_v4(&address, &((const struct sockaddr_in *)peer)->sin_addr);
	else
		address = ((const struct sockaddr_in6 *)peer)->sin6_addr;
	for (size_t i = 0; i < allow->count; i++) {
		if (memcmp(&allow->addresses[i], &address, sizeof address) == 0)
			return true;
	}
	return false;
}
