package views

import (
	"context"
	"encoding/json"

	"sluis/views/i18n"
)

var themes = []struct{ value, label string }{
	{"", "theme.auto"}, {"light", "theme.light"}, {"dark", "theme.dark"},
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func otherLang(lang string) string {
	if lang == "nl" {
		return "en"
	}
	return "nl"
}

// toneMark is the shape that goes with a tone, so that colour is never alone.
func toneMark(t Tone) string {
	switch t {
	case ToneCrit:
		return "▲"
	case ToneWarn:
		return "◆"
	case ToneOK:
		return "●"
	}
	return "○"
}

func (f Flash) text(ctx context.Context) string {
	kv := make([]any, len(f.Args))
	for i, a := range f.Args {
		kv[i] = a
	}
	return i18n.T(ctx, f.ID, kv...)
}

// agoForms gives the script the sentences with which it counts on: the server's
// own, with N as the placeholder.
func agoForms(ctx context.Context) (string, error) {
	forms := map[string]string{"now": i18n.T(ctx, "time.ago_now")}
	for _, unit := range []string{"s", "min", "h", "d"} {
		forms["ago_"+unit] = i18n.T(ctx, "time.ago_"+unit, "N", "N")
		forms["in_"+unit] = i18n.T(ctx, "time.in_"+unit, "N", "N")
	}
	text, err := json.Marshal(forms)
	return string(text), err
}
