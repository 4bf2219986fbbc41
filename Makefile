# magneto: every target that a developer needs.  `make help` lists them.
PY ?= .venv/bin/python
BUILD ?= build
.PHONY: help build unit
help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'
build: ## compile the extension into python/magneto
	@test -d $(BUILD) || PATH=$$PWD/.venv/bin:$$PATH .venv/bin/meson setup $(BUILD)
	@python3 tools/sources.py src/base src/ir src/middle src/back src/runtime src/driver src/front src/api tests/unit > $(BUILD)/sources.new
	@cmp -s $(BUILD)/sources.new $(BUILD)/sources.old || { touch meson.build; cp $(BUILD)/sources.new $(BUILD)/sources.old; }
	@PATH=$$PWD/.venv/bin:$$PATH .venv/bin/meson compile -C $(BUILD)
	@cp $(BUILD)/_magneto*.so python/magneto/ 2>/dev/null || true
unit: build ## the C tests of the core
	@PATH=$$PWD/.venv/bin:$$PATH .venv/bin/meson test -C $(BUILD) --print-errorlogs
