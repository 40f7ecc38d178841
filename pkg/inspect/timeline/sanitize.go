package timeline

import (
	"reflect"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
)

// maxTextLength is the maximum length in characters of a text on one line.
const maxTextLength = 400

// sanitizeText makes a text from a run directory safe for one line of a terminal. The text is
// untrusted: it may move the cursor, reverse the writing direction, or be very long.
func sanitizeText(text string) string { return textutil.SingleLine(text, maxTextLength) }

// sanitizeTexts replaces all texts in a value by sanitized ones. It copies slices and pointers, which
// may be those of a record.
func sanitizeTexts(value reflect.Value) {
	switch value.Kind() {
	case reflect.String:
		value.SetString(sanitizeText(value.String()))
	case reflect.Pointer:
		if !value.IsNil() {
			own := reflect.New(value.Type().Elem())
			own.Elem().Set(value.Elem())
			value.Set(own)
			sanitizeTexts(own.Elem())
		}
	case reflect.Slice:
		if value.IsNil() {
			return
		}
		value.Set(reflect.AppendSlice(reflect.MakeSlice(value.Type(), 0, value.Len()), value))
		for i := range value.Len() {
			sanitizeTexts(value.Index(i))
		}
	case reflect.Struct:
		for i := 0; i < value.NumField() && value.Type() != reflect.TypeFor[time.Time](); i++ {
			sanitizeTexts(value.Field(i))
		}
	}
}

func formatDuration(d time.Duration) string {
	if d >= time.Hour {
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return textutil.RoundedDuration(d, 10*time.Second)
}
