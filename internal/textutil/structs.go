package textutil

import (
	"reflect"
	"strconv"
	"time"
)

// CleanTexts replaces all texts in what a pointer points to by those that clean returns. limit is the
// number in the tag max of the field, or otherwise the given one. Slices and what other pointers point
// to are copied, because they may be those of a record. Fields that are not exported stay.
func CleanTexts(pointer any, limit int, clean func(text string, limit int) string) {
	cleanTexts(reflect.ValueOf(pointer).Elem(), limit, clean)
}

func cleanTexts(value reflect.Value, limit int, clean func(text string, limit int) string) {
	switch kind := value.Kind(); {
	case kind == reflect.String && value.CanSet():
		value.SetString(clean(value.String(), limit))
	case kind == reflect.Pointer && !value.IsNil() && value.CanSet():
		own := reflect.New(value.Type().Elem())
		own.Elem().Set(value.Elem())
		value.Set(own)
		cleanTexts(own.Elem(), limit, clean)
	case kind == reflect.Slice && !value.IsNil() && value.CanSet():
		value.Set(reflect.AppendSlice(reflect.MakeSlice(value.Type(), 0, value.Len()), value))
		for i := range value.Len() {
			cleanTexts(value.Index(i), limit, clean)
		}
	case kind == reflect.Struct && value.Type() != reflect.TypeFor[time.Time]():
		for i := range value.NumField() {
			own := limit
			if most, err := strconv.Atoi(value.Type().Field(i).Tag.Get("max")); err == nil {
				own = most
			}
			cleanTexts(value.Field(i), own, clean)
		}
	}
}
