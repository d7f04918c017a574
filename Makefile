# For those whose fingers type make; ./dev does the work and needs no make.
.PHONY: demo test check peers bench fuzz
demo test check peers bench fuzz:
	./dev $@
