package setting

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/prose"
)

// The constructors below return settings, one for each type of value.

// Valued returns a setting of one value, with functions that parse and show it.
func Valued[T any](name, shape string, to *T, parse func(string) (T, error), show func(T) any, usage string) *Setting {
	return &Setting{
		Name: name, Shape: shape, Usage: usage,
		Take: func(value string) error {
			parsed, err := parse(value)
			if err == nil {
				*to = parsed
			}
			return err
		},
		Show: func() any { return show(*to) },
	}
}

// Itself shows a value unchanged.
func Itself[T any](value T) any { return value }

// Text accepts any text.
func Text(name, shape string, to *string, usage string) *Setting {
	return Valued(name, shape, to, func(value string) (string, error) { return value, nil }, Itself, usage)
}

// Choice accepts one of several words.
func Choice(name string, accepted []string, to *string, usage string) *Setting {
	s := Valued(name, "WORD", to, func(value string) (string, error) {
		if !slices.Contains(accepted, value) {
			return "", fmt.Errorf("give one of %s%s", strings.Join(accepted, ", "), Suggestion("", value, accepted))
		}
		return value, nil
	}, Itself, usage)
	s.Accepted = accepted
	return s
}

// Number accepts a whole number from least to most. A default outside of that range means that
// there is none.
func Number(name string, to *int, least, most int, usage string) *Setting {
	return Valued(name, "N", to, func(value string) (int, error) {
		n, err := strconv.Atoi(value)
		if err != nil || n < least || n > most {
			return 0, fmt.Errorf("give a whole number of %d to %d", least, most)
		}
		return n, nil
	}, func(n int) any {
		if n < least {
			return nil
		}
		return n
	}, usage)
}

// Yes is a switch.
func Yes(name string, to *bool, usage string) *Setting {
	return Valued(name, "", to, func(value string) (bool, error) {
		parsed, err := strconv.ParseBool(value)
		if err != nil {
			err = errors.New("give true or false")
		}
		return parsed, err
	}, Itself, usage)
}

// Words accepts a list: a repeated flag, the lines of a variable, or a list in the file.
func Words(name, shape string, to *[]string, usage string) *Setting {
	s := Valued(name, shape, to, func(value string) ([]string, error) { return append(*to, value), nil }, Itself, usage)
	s.Repeats = true
	return s
}

// Wait accepts a duration, which must have a unit.
func Wait(name string, to *time.Duration, usage string) *Setting {
	return Valued(name, "TIME", to, func(value string) (time.Duration, error) {
		parsed, err := time.ParseDuration(value)
		if err == nil {
			return parsed, nil
		}
		if _, err := strconv.ParseFloat(value, 64); err == nil {
			return 0, errors.New("it has no unit: give one, as in 90s, 5m or 250ms")
		}
		return 0, errors.New("give a number and its unit, as in 90s, 5m or 250ms")
	}, func(d time.Duration) any { return prose.FlagTime(d) }, usage)
}

// Removed returns the setting of a flag that this release no longer has. Any value for it is
// refused with instead, a clause that names the replacement. The shape is that of the former value.
func Removed(name, shape, instead string) *Setting {
	s := Foreign(name, shape, func(string) string { return "this flag was removed: " + instead })
	s.removed = true
	return s
}

// Foreign returns the setting of a flag that only other programs have. Any value for it is refused
// with the reason, a clause that names the flag to use.
func Foreign(name, shape string, reason func(value string) string) *Setting {
	s := &Setting{
		Name: name, Shape: shape,
		Take: func(value string) error { return errors.New(reason(value)) },
		Show: func() any { return nil },
	}
	return s.Hide()
}
