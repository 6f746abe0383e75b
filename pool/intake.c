#include "pool/intake.h"

#include <errno.h>
#include <string.h>

#include "pool/broker.h"
#include "pool/conn.h"
#include "pool/frontend.h"

static void refuse_for_memory(struct request *r)
{
	log_limited(&r->broker->memory_gate, 1000, LOG_LEVEL_WARNING,
		    "mpxs.buffer_size (%lld bytes) reached on a connection: its further requests are answered 503",
		    (long long)r->broker->settings->mpxs_buffer_bytes);
	request_reply(r, REPLY_NO_MEMORY);
}

void intake_params(struct request *r, const uint8_t *data, size_t len)
{
	if (r->state != REQUEST_RECEIVING)
		return;
	if (buf_len(&r->params) + len > (size_t)r->broker->settings->request_max_params_bytes)
		request_reply(r, REPLY_PARAMS_TOO_LARGE);
	else if (conn_is_over_memory(r->conn, len))
		refuse_for_memory(r);
	else if (buf_append(&r->params, data, len))
		request_account(r);
	else
		conn_close(r->conn, "out of memory");
}

/* php-cgi takes no pair that does not fit into one record. */
static bool pairs_fit_records(const struct request *r)
{
	struct params_iter it;
	struct param p;

	if (buf_len(&r->params) <= RECORD_MAX_CONTENT)
		return true;
	params_iter_init(&it, buf_head(&r->params), buf_len(&r->params));
	while (params_next(&it, &p) == PARAMS_PAIR) {
		if (params_pair_len(p.name_len, p.value_len) > RECORD_MAX_CONTENT)
			return false;
	}
	return true;
}

static bool is_ping(const struct request *r)
{
	const char *path = r->broker->settings->ping_path;
	return path && slice_is(r->meta.of[META_SCRIPT_NAME], path);
}

/* Answered by the broker, so also while every worker is busy. Headers as
 * php-fpm's; a HEAD gets them alone. */
static void reply_ping(struct request *r)
{
	static const char headers[] = "Content-type: text/plain;charset=UTF-8\r\n"
				      "Expires: Thu, 01 Jan 1970 00:00:00 GMT\r\n"
				      "Cache-Control: no-cache, no-store, must-revalidate, max-age=0\r\n\r\n";
	const char *text = r->broker->settings->ping_response;

	if (slice_is(r->meta.of[META_REQUEST_METHOD], "HEAD") || !text)
		text = "";
	request_reply_with(r, 200, headers, text);
}

static void log_denied(struct request *r)
{
	char what[640];
	log_limited(&r->broker->script_gate, 1000, LOG_LEVEL_NOTICE,
		    "access to the script of \"%s\" has been denied (see security.limit_extensions)",
		    meta_describe(&r->meta, what, sizeof what));
}

/* PHP computes PATH_INFO from the end of a longer one; a shorter one has made
 * it read before the start of the string (CVE-2019-11043 and its kin). */
static void repair_path_info(struct request *r, struct slice found)
{
	struct slice sent = r->meta.of[META_PATH_INFO];

	if (found.at && sent.at && sent.len < found.len)
		r->path_info = found;
}

/* What php-fpm does beyond php-cgi where Apache is in front. */
static void repair_apache(struct request *r, struct slice found)
{
	if (!r->meta.by_apache)
		return;
	if (!found.at) {
		r->meta.script_tail = script_tail(&r->broker->judge, &r->meta, r->begun_us);
		return;
	}
	if (!r->meta.of[META_PATH_INFO].at)
		meta_cut_script_name(&r->meta, found);
	r->path_info = found;
}

static bool admit_script(struct request *r)
{
	struct slice path_info;

	switch (script_judge(&r->broker->judge, &r->meta, r->begun_us, &path_info)) {
	case SCRIPT_ALLOWED:
		repair_path_info(r, path_info);
		repair_apache(r, path_info);
		r->hides_translated = script_hides_translated(&r->broker->judge, &r->meta);
		return true;
	case SCRIPT_DENIED:
		log_denied(r);
		request_reply(r, REPLY_DENIED);
		return false;
	case SCRIPT_MISSING:
		request_reply(r, REPLY_NO_FILE);
		return false;
	case SCRIPT_TOO_LONG:
	default:
		request_reply(r, REPLY_PARAMS_TOO_LARGE);
		return false;
	}
}

static bool body_too_large(const struct request *r, int64_t bytes)
{
	int64_t max = r->broker->settings->request_max_body_bytes;
	return max > 0 && bytes > max;
}

/* Front ends may leave STDIN out of a request without a body. */
static bool expects_body(const struct request *r)
{
	const struct meta *m = &r->meta;

	if (m->content_length >= 0)
		return m->content_length > 0;
	return !meta_is_safe_method(m) && !slice_is(m->of[META_REQUEST_METHOD], "DELETE");
}

void intake_params_end(struct request *r)
{
	if (r->state != REQUEST_RECEIVING)
		return;
	if (meta_parse(&r->meta, buf_head(&r->params), buf_len(&r->params))) {
		request_reply(r, REPLY_BAD_REQUEST);
		return;
	}
	r->params_done = true;
	if (!pairs_fit_records(r))
		request_reply(r, REPLY_PARAMS_TOO_LARGE);
	else if (is_ping(r))
		reply_ping(r);
	else if (body_too_large(r, r->meta.content_length))
		request_reply(r, REPLY_BODY_TOO_LARGE);
	else if (admit_script(r) && !expects_body(r))
		request_enqueue(r);
	if (r->state == REQUEST_RECEIVING)
		request_on_progress(r); /* the body has a time of its own */
}

/* False with errno set. */
static bool store_body(struct request *r, const uint8_t *data, size_t len)
{
	const struct pool_settings *s = r->broker->settings;
	bool in_memory = r->body.fd < 0;
	int64_t memory_bytes = conn_is_short_of_memory(r->conn, len) ? 0 : s->request_buffer_bytes;
	bool stored;

	if (in_memory && r->body.size_bytes + (int64_t)len > memory_bytes &&
	    !frontend_has_descriptor(r->broker)) {
		errno = EMFILE;
		return false;
	}
	stored = spool_append(&r->body, data, len, (size_t)memory_bytes, s->request_spool_dir);
	r->broker->spool_count += in_memory && r->body.fd >= 0;
	request_account(r);
	return stored;
}

void intake_stdin(struct request *r, const uint8_t *data, size_t len)
{
	struct broker *b = r->broker;
	const struct pool_settings *s = b->settings;

	if (r->state != REQUEST_RECEIVING)
		return; /* answered early, or a body that nothing announced */
	if (body_too_large(r, r->body.size_bytes + (int64_t)len)) {
		request_reply(r, REPLY_BODY_TOO_LARGE);
		return;
	}
	if (store_body(r, data, len)) {
		request_on_progress(r);
		/* HAProxy 2.6 sends no end where the browser tells its own later. */
		if (r->params_done && r->meta.content_length >= 0 && r->body.size_bytes >= r->meta.content_length)
			request_enqueue(r);
		return;
	}
	log_limited(&b->spool_gate, 1000, LOG_LEVEL_ERROR, "cannot store a request body in request.spool_dir %s: %s",
		    s->request_spool_dir, strerror(errno));
	request_reply(r, REPLY_NO_SPACE);
}

void intake_stdin_end(struct request *r)
{
	if (r->state != REQUEST_RECEIVING)
		return;
	/* php-cgi would wait for the rest for ever, and half a body is no body. */
	if (r->params_done && r->body.size_bytes < r->meta.content_length)
		request_reply(r, REPLY_BAD_REQUEST);
	else
		request_enqueue(r);
}
