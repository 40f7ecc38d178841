package main

import (
	"fmt"
	"strings"
	"testing"
)

// FuzzSetting gives one of all settings a value, and what it shows once more.
func FuzzSetting(f *testing.F) {
	give := func(name, value string) (shown any, err error) {
		s := newOptions().settings().find(name)
		s.offer(byFlag, "", value)
		err = s.settle()
		return s.show(), err
	}
	for _, s := range newOptions().settings() {
		f.Add(s.name, "")
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		s := newOptions().settings().find(name)
		if s == nil {
			return
		}
		shown, err := give(name, value)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "cannot use --"+name+"="+oneLine(value)+": ") || strings.Contains(err.Error(), "\n") {
				t.Errorf("the error is %v", err)
			}
			return
		}
		if s.repeats {
			return
		}
		again, err := give(name, fmt.Sprint(shown))
		if err != nil || again != shown {
			t.Errorf("--%s=%s is %v, which is %v: %v", name, value, shown, again, err)
		}
	})
}
