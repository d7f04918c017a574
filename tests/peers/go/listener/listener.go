// Package listener is what members of consumer groups for the bench share: the commands and the log that
// bench/commands.py describes.
package listener

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// A Joining says who joins what.
type Joining struct {
	Servers, Group, Topic, Name string

	records *os.File
	work    time.Duration
}

// Listen logs a message, then works on it for a while. For several goroutines: a write is one record.
func (j *Joining) Listen(queue int32, offset int64) {
	record := make([]byte, 20)
	binary.BigEndian.PutUint64(record, uint64(now()))
	binary.BigEndian.PutUint32(record[8:], uint32(queue))
	binary.BigEndian.PutUint64(record[12:], uint64(offset))
	if _, err := j.records.Write(record); err != nil {
		panic(err)
	}
	if j.work > 0 {
		time.Sleep(j.work)
	}
}

// Serve follows commands to the end of standard input. `start` gives what leaves the group cleanly.
// What a library prints goes to standard error, apart from the answers.
func Serve(start func(*Joining) (leave func())) {
	out := os.Stdout
	os.Stdout = os.Stderr
	var leave func()
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		words := strings.Fields(input.Text())
		switch {
		case len(words) == 1 && words[0] == "clock":
			fmt.Fprintln(out, now())
		case len(words) == 7 && words[0] == "start":
			leave = start(joining(words[1:]))
			fmt.Fprintln(out, "started")
		case len(words) == 1 && words[0] == "stop" && leave != nil:
			leave()
			leave = nil
			fmt.Fprintln(out, "stopped")
		default:
			panic("no such command: " + input.Text())
		}
	}
	if leave != nil {
		leave()
	}
}

func joining(words []string) *Joining {
	records, err := os.OpenFile(words[4], os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		panic(err)
	}
	work, err := strconv.Atoi(words[5])
	if err != nil {
		panic(err)
	}
	return &Joining{
		Servers: words[0], Group: words[1], Topic: words[2], Name: words[3],
		records: records, work: time.Duration(work) * time.Millisecond,
	}
}

// now is the clock of Python's time.monotonic_ns, in nanoseconds; Go's own monotonic time cannot be read as a number.
func now() int64 {
	var at syscall.Timespec
	const clockMonotonic = 1
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&at)), 0)
	return at.Nano()
}
