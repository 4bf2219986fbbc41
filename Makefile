# magneto: every target that a developer needs.  `make help` lists them.
PY ?= .venv/bin/python
BUILD ?= build
.PHONY: help build
help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'
build: ## compile the extension into python/magneto
	@test -d $(BUILD) || PATH=$$PWD/.venv/bin:$$PATH .venv/bin/meson setup $(BUILD) >/dev/null
	@.venv/bin/meson compile -C $(BUILD)
	@cp $(BUILD)/_magneto*.so python/magneto/ 2>/dev/null || true
