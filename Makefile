# make help says what there is; README.md says more.
PREFIX ?= /usr/local
DESTDIR ?=
BUILD ?= build
CC ?= cc
CFLAGS ?= -O2 -g
WARNINGS = -Wall -Wextra -Wshadow -Wstrict-prototypes -Wvla
WERROR ?=
SANITIZE ?=
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE -I. $(CFLAGS) $(WARNINGS) $(WERROR) $(SANITIZE) -MMD -MP -fno-strict-aliasing
LINK = $(CC) $(SANITIZE) $(LDFLAGS) -o $@ $(filter %.o %.a,$^)
LIBS = -lev -linih
TIME ?= 60
PART ?=

# The gate is a library of its own, for php-cgi: no sanitizer's, whatever else is.
GATE = $(BUILD)/gate.so
GATE_SOURCES = pool/gate.c pool/confine.c
SOURCES = $(filter-out pool/gate.c,$(wildcard fpm/*.c pool/*.c protocol/*.c))
OBJECTS = $(SOURCES:%.c=$(BUILD)/%.o)
LIB_OBJECTS = $(filter-out $(BUILD)/fpm/main.o,$(OBJECTS))
UNITS = $(patsubst tests/unit/%.c,$(BUILD)/unit/%,$(wildcard tests/unit/test_*.c))
FUZZERS = $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
REPLAYS = $(FUZZERS:%=$(BUILD)/replay/%)
EXAMPLES = $(wildcard $(addsuffix /*,$(addprefix etc/,nginx haproxy lighttpd apache caddy h2o)))
PEERS = $(patsubst tests/peers/%.c,$(BUILD)/peers/%,$(wildcard tests/peers/*.c))
TEST_OBJECTS = $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/unit/*.c tests/fuzz/*.c tests/peers/*.c))

ASAN = BUILD=build/asan SANITIZE="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"
CLANG = BUILD=build/clang CC=clang
LIBFUZZER = BUILD=build/fuzz CC=clang \
	SANITIZE="-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"

all: $(BUILD)/h2fpm

# The demo. Three steps, since on a bare machine the first brings the compiler.
run:
	@etc/deps.sh run
	@$(MAKE) --no-print-directory all
	@H2FPM=$(BUILD)/h2fpm exec env --default-signal etc/demo/run.sh

test:
	@etc/deps.sh test
	@exec env --default-signal /usr/bin/python3 tests/run

# Everything that the C compiler makes, for a check of the warnings alone.
compile: $(BUILD)/h2fpm $(UNITS) $(REPLAYS) $(PEERS)

asan:
	+@$(MAKE) --no-print-directory $(ASAN) compile
clang:
	+@$(MAKE) --no-print-directory $(CLANG) WERROR=-Werror compile

units: $(UNITS)
unit: $(UNITS)
	@for t in $(UNITS); do $$t || exit 1; done

replay: $(REPLAYS)
fuzz-replay: $(REPLAYS)
	@for f in $(FUZZERS); do $(BUILD)/replay/$$f tests/fuzz/corpus/$${f#fuzz_} || exit 1; done

# Each fuzzer in turn for TIME seconds; new inputs go to build/, not the checkout.
fuzz:
	@etc/deps.sh fuzz
	+@$(MAKE) --no-print-directory $(LIBFUZZER) fuzzers
	@for f in $(FUZZERS); do mkdir -p build/fuzz/corpus/$$f || exit 1; \
		build/fuzz/fuzzers/$$f -max_total_time=$(TIME) -artifact_prefix=build/fuzz/ \
		build/fuzz/corpus/$$f tests/fuzz/corpus/$${f#fuzz_} || exit 1; done
fuzzers: $(FUZZERS:%=$(BUILD)/fuzzers/%)

peers: $(PEERS)

system: $(BUILD)/h2fpm $(PEERS)
	H2FPM=$(abspath $(BUILD)/h2fpm) PEERS=$(abspath $(BUILD)/peers) /usr/bin/python3 -m pytest tests/system

lint:
	@etc/deps.sh lint
	cppcheck --quiet --std=c11 --enable=warning,performance,portability --inline-suppr --error-exitcode=1 \
		--suppress=missingIncludeSystem -D_GNU_SOURCE -D__linux__ -I. fpm pool protocol
	clang-tidy --quiet --warnings-as-errors='*' $(SOURCES) pool/gate.c -- -std=c11 -D_GNU_SOURCE -I.
	shellcheck etc/deps.sh etc/demo/run.sh .ci/run
	@echo 'Nothing to complain about (the warnings counted above are in other people'\''s headers).'

# PART=fanout, say, runs one part; tests/bench/bench --help lists them.
bench:
	@etc/deps.sh bench
	@$(MAKE) --no-print-directory all
	@H2FPM=$(abspath $(BUILD)/h2fpm) exec env --default-signal /usr/bin/python3 tests/bench/bench $(PART)

deps:
	@etc/deps.sh run

install: $(BUILD)/h2fpm
	install -d $(DESTDIR)$(PREFIX)/sbin $(DESTDIR)$(PREFIX)/share/man/man8 $(DESTDIR)$(PREFIX)/share/man/man5 \
		$(DESTDIR)$(PREFIX)/lib/systemd/system $(DESTDIR)$(PREFIX)/share/doc/h2fpm/examples \
		$(DESTDIR)/etc/h2fpm $(DESTDIR)/etc/logrotate.d
	install -m 0755 $(BUILD)/h2fpm $(DESTDIR)$(PREFIX)/sbin/h2fpm
	install -m 0644 $(wildcard etc/man/*.8) $(DESTDIR)$(PREFIX)/share/man/man8
	install -m 0644 $(wildcard etc/man/*.5) $(DESTDIR)$(PREFIX)/share/man/man5
	sed 's|@SBIN@|$(PREFIX)/sbin|' etc/systemd/h2fpm.service >$(DESTDIR)$(PREFIX)/lib/systemd/system/h2fpm.service
	chmod 0644 $(DESTDIR)$(PREFIX)/lib/systemd/system/h2fpm.service
	install -m 0644 pool.ini $(DESTDIR)$(PREFIX)/share/doc/h2fpm/examples
	for f in $(EXAMPLES:etc/%=%); do \
		install -D -m 0644 etc/$$f $(DESTDIR)$(PREFIX)/share/doc/h2fpm/examples/$$f || exit 1; done
	[ -e $(DESTDIR)/etc/h2fpm/pool.ini ] || install -m 0644 pool.ini $(DESTDIR)/etc/h2fpm/pool.ini
	[ -e $(DESTDIR)/etc/logrotate.d/h2fpm ] || install -m 0644 etc/logrotate/h2fpm $(DESTDIR)/etc/logrotate.d/h2fpm

# The configuration stays: it may be someone's work.
uninstall:
	rm -f $(DESTDIR)$(PREFIX)/sbin/h2fpm $(DESTDIR)$(PREFIX)/lib/systemd/system/h2fpm.service \
		$(DESTDIR)/etc/logrotate.d/h2fpm
	rm -f $(patsubst etc/man/%,$(DESTDIR)$(PREFIX)/share/man/man8/%,$(wildcard etc/man/*.8)) \
		$(patsubst etc/man/%,$(DESTDIR)$(PREFIX)/share/man/man5/%,$(wildcard etc/man/*.5))
	rm -rf $(DESTDIR)$(PREFIX)/share/doc/h2fpm

clean:
	rm -rf build

help:
	@echo 'make              build $(BUILD)/h2fpm'
	@echo 'make run          the demo on https://localhost:8443 (PORT=... for another port)'
	@echo 'make test         everything: unit, fuzz corpora and system tests, also with sanitizers'
	@echo 'make bench        the measurements, beside php-fpm (PART=fanout for one of them)'
	@echo 'make unit         unit tests        make system  system tests   make fuzz-replay  corpora'
	@echo 'make fuzz         libFuzzer, TIME=60 seconds each'
	@echo 'make lint         cppcheck, clang-tidy, shellcheck'
	@echo 'make asan, clang  the same sources with sanitizers, with clang'
	@echo 'make install      PREFIX=$(PREFIX) DESTDIR=$(DESTDIR); make uninstall'
	@echo 'make deps         what the program and the demo need from Debian 12 (as root)'
	@echo 'make clean'

$(BUILD)/h2fpm: $(OBJECTS)
	$(LINK) $(LIBS)

# For the tests: each takes what it needs.
$(BUILD)/all.a: $(LIB_OBJECTS)
	@rm -f $@
	ar rcs $@ $^

$(BUILD)/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -c -o $@ $<

$(GATE): $(GATE_SOURCES) pool/confine.h pool/gate_proto.h $(BUILD)/flags
	@mkdir -p $(@D)
	$(CC) -std=c11 -D_GNU_SOURCE -I. -O2 $(WARNINGS) $(WERROR) -fPIC -shared -Wl,-z,now -o $@ $(GATE_SOURCES)

$(BUILD)/pool/gate_image.o: $(GATE)
$(BUILD)/pool/gate_image.o: ALL_CFLAGS += -DGATE_FILE='"$(GATE)"'

$(UNITS): $(BUILD)/unit/%: $(BUILD)/tests/unit/%.o $(BUILD)/all.a
	@mkdir -p $(@D)
	$(LINK) $(LIBS) -lcmocka

$(REPLAYS): $(BUILD)/replay/%: $(BUILD)/tests/fuzz/%.o $(BUILD)/tests/fuzz/replay.o $(BUILD)/all.a
	@mkdir -p $(@D)
	$(LINK) $(LIBS)

$(BUILD)/fuzzers/%: $(BUILD)/tests/fuzz/%.o $(BUILD)/all.a
	@mkdir -p $(@D)
	$(LINK) -fsanitize=fuzzer $(LIBS)

$(PEERS): $(BUILD)/peers/%: $(BUILD)/tests/peers/%.o
	@mkdir -p $(@D)
	$(LINK) -lfcgi

# Other flags than last time: everything is made anew.
$(BUILD)/flags: always
	@mkdir -p $(@D)
	@printf '%s\n' '$(CC) $(subst ','\'',$(ALL_CFLAGS))' | cmp -s - $@ || \
		printf '%s\n' '$(CC) $(subst ','\'',$(ALL_CFLAGS))' >$@

.SECONDARY: $(TEST_OBJECTS)
-include $(OBJECTS:.o=.d) $(TEST_OBJECTS:.o=.d)
.PHONY: all run test compile asan clang unit units replay fuzz-replay fuzz fuzzers peers system lint bench deps \
	install uninstall clean help always
