# h2fpm: make run, make test; see README.md.
PREFIX ?= /usr/local
DESTDIR ?=
BUILD ?= build
CC ?= cc
CFLAGS ?= -O2 -g
WARNINGS = -Wall -Wextra -Wshadow -Wstrict-prototypes -Wvla
WERROR ?=
SANITIZE ?=
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE -I. $(CFLAGS) $(WARNINGS) $(WERROR) $(SANITIZE) -MMD -MP -fno-strict-aliasing
LIBS = -lev -linih

SOURCES = $(wildcard fpm/*.c pool/*.c protocol/*.c)
OBJECTS = $(SOURCES:%.c=$(BUILD)/%.o)
LIB_OBJECTS = $(filter-out $(BUILD)/fpm/main.o,$(OBJECTS))
UNITS = $(patsubst tests/unit/%.c,$(BUILD)/unit/%,$(wildcard tests/unit/test_*.c))

all: $(BUILD)/h2fpm

$(BUILD)/h2fpm: $(OBJECTS)
	$(CC) $(SANITIZE) $(LDFLAGS) -o $@ $^ $(LIBS)

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -c -o $@ $<

$(BUILD)/unit/%: tests/unit/%.c $(LIB_OBJECTS)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -o $@ $< $(LIB_OBJECTS) $(LIBS) -lcmocka

unit: $(UNITS)
	@for t in $(UNITS); do $$t || exit 1; done

clean:
	rm -rf build

-include $(OBJECTS:.o=.d)
.PHONY: all unit clean
