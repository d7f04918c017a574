// Package lines is what the member programs share: options in, commands in, one JSON object a line out.
package lines

import (
	"bufio"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Options are the arguments, KEY=VALUE each; members.py says which there are.
type Options map[string]string

func Read() Options {
	options := Options{}
	for _, argument := range os.Args[1:] {
		key, value, _ := strings.Cut(argument, "=")
		options[key] = value
	}
	return options
}

func (o Options) Duration(key string) time.Duration {
	ms, err := strconv.Atoi(o[key])
	if err != nil {
		panic(key + " is no number of milliseconds: " + o[key])
	}
	return time.Duration(ms) * time.Millisecond
}

// Commands are the lines of standard input; its end is the command leave.
func Commands() <-chan string {
	commands := make(chan string)
	go func() {
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			commands <- lines.Text()
		}
		commands <- "leave"
	}()
	return commands
}

var out sync.Mutex

func Emit(event string, fields map[string]any) {
	line := map[string]any{"event": event}
	for key, value := range fields {
		line[key] = value
	}
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	out.Lock()
	defer out.Unlock()
	os.Stdout.Write(append(text, '\n'))
}

// Partitions tells which partitions an event is about, by their names TOPIC-NUMBER.
func Partitions(event string, partitions map[string][]int32) {
	names := []string{}
	for topic, numbers := range partitions {
		for _, number := range numbers {
			names = append(names, Name(topic, number))
		}
	}
	Emit(event, map[string]any{"partitions": names})
}

func Name(topic string, partition int32) string {
	return topic + "-" + strconv.Itoa(int(partition))
}

func Record(topic string, partition int32, offset int64, value []byte) {
	Emit("record", map[string]any{
		"partition": Name(topic, partition), "offset": offset, "value": string(value),
	})
}

func Error(err error) {
	Emit("error", map[string]any{"error": err.Error()})
}
