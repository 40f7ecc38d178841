package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/internal/textutil"
)

// The constructors below return settings, one for each type of value.

// NewValue returns a setting of one value, with functions that parse and show it.
func NewValue[T any](
	name, shape string, to *T, parse func(string) (T, error), show func(T) any, usage string,
) *Setting {
	return &Setting{
		GenericFlag: cli.GenericFlag{Name: name, Usage: usage}, Placeholder: shape,
		SetValue: func(value string) error {
			parsed, err := parse(value)
			if err == nil {
				*to = parsed
			}
			return err
		},
		CurrentValue: func() any { return show(*to) },
	}
}

// NewOptional returns a setting of one value, which an empty string removes.
func NewOptional[T comparable](name, shape string, to *T, parse func(string) (T, error), usage string) *Setting {
	var none T
	return NewValue(name, shape, to, func(value string) (T, error) {
		if value == "" {
			return none, nil
		}
		return parse(value)
	}, func(value T) any {
		if value == none {
			return ""
		}
		return fmt.Sprint(value)
	}, usage)
}

// ShowUnchanged shows a value unchanged.
func ShowUnchanged[T any](value T) any { return value }

// ShowText shows a value as its text.
func ShowText[T any](value T) any { return fmt.Sprint(value) }

// ShowGiven shows a value as its text, and the zero value as none.
func ShowGiven[T comparable](value T) any {
	var none T
	if value == none {
		return nil
	}
	return fmt.Sprint(value)
}

// NewText accepts any text.
func NewText(name, shape string, to *string, usage string) *Setting {
	return NewValue(name, shape, to, func(value string) (string, error) { return value, nil }, ShowUnchanged, usage)
}

// NewChoice accepts one of several words.
func NewChoice(name string, accepted []string, to *string, usage string) *Setting {
	return NewValue(name, "WORD", to, func(value string) (string, error) {
		if !slices.Contains(accepted, value) {
			return "", fmt.Errorf("give one of %s%s", strings.Join(accepted, ", "), SuggestNearest("", value, accepted))
		}
		return value, nil
	}, ShowUnchanged, usage).WithWords(accepted...)
}

// NewNumber accepts a whole number from lowest to highest. A default outside of that range means that
// there is none.
func NewNumber(name string, to *int, lowest, highest int, usage string) *Setting {
	return NewValue(name, "N", to, func(value string) (int, error) {
		n, err := strconv.Atoi(value)
		if err != nil || n < lowest || n > highest {
			return 0, fmt.Errorf("give a whole number from %d to %d", lowest, highest)
		}
		return n, nil
	}, func(n int) any {
		if n < lowest {
			return nil
		}
		return n
	}, usage)
}

// NewNumberList accepts whole numbers from lowest to highest, separated by commas.
func NewNumberList(name string, to *[]int, lowest, highest int, usage string) *Setting {
	return NewValue(name, "N,…", to, func(value string) (numbers []int, err error) {
		for field := range strings.SplitSeq(value, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(field))
			if err != nil || n < lowest || n > highest {
				return nil, fmt.Errorf("give whole numbers from %d to %d, separated by commas", lowest, highest)
			}
			numbers = append(numbers, n)
		}
		return numbers, nil
	}, func([]int) any { return nil }, usage)
}

// NewSwitch is a switch.
func NewSwitch(name string, to *bool, usage string) *Setting {
	return NewValue(name, "", to, func(value string) (bool, error) {
		parsed, err := strconv.ParseBool(value)
		if err != nil {
			err = errors.New("give true or false")
		}
		return parsed, err
	}, ShowUnchanged, usage)
}

// NewList accepts a list: a repeated flag, the lines of a variable, or a list in the file.
func NewList[T any](name, shape string, to *[]T, parse func(string) (T, error), usage string) *Setting {
	s := NewValue(name, shape, to, func(value string) ([]T, error) {
		parsed, err := parse(value)
		return append(*to, parsed), err
	}, func(all []T) any {
		return textutil.MapSlice(all, func(one T) string { return fmt.Sprint(one) })
	}, usage)
	s.IsRepeatable = true
	return s
}

// NewWordList accepts a list of any texts.
func NewWordList(name, shape string, to *[]string, usage string) *Setting {
	return NewList(name, shape, to, func(value string) (string, error) { return value, nil }, usage)
}

// NewDuration accepts a duration, which must have a unit.
func NewDuration(name string, to *time.Duration, usage string) *Setting {
	return NewValue(name, "TIME", to, func(value string) (time.Duration, error) {
		parsed, err := time.ParseDuration(value)
		if err == nil {
			return parsed, nil
		}
		if _, err := strconv.ParseFloat(value, 64); err == nil {
			return 0, errors.New("the unit is missing: give, for example, 90s, 5m or 250ms")
		}
		return 0, errors.New("give a number with a unit, for example 90s, 5m or 250ms")
	}, func(d time.Duration) any { return textutil.FlagDuration(d) }, usage)
}

// NewRemoved returns the setting of a flag that this release no longer has. Any value for it is
// refused with instead, a clause that names the replacement. The shape is that of the former value.
func NewRemoved(name, shape, instead string) *Setting {
	return &Setting{
		GenericFlag: cli.GenericFlag{Name: name, Hidden: true}, Placeholder: shape, isRemoved: true,
		SetValue:     func(string) error { return errors.New("this flag was removed: " + instead) },
		CurrentValue: func() any { return nil },
	}
}
