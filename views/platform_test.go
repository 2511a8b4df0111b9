package views_test

import (
	"strings"
	"testing"
	"time"

	"github.com/PuerkitoBio/goquery"
	"github.com/a-h/templ"

	"sluis/views"
	"sluis/views/i18n"
)

var now = time.Date(2025, 10, 26, 5, 40, 12, 0, time.UTC)

// render renders the component in the language and parses it.
func render(t *testing.T, lang string, component templ.Component) *goquery.Document {
	t.Helper()
	var out strings.Builder
	if err := component.Render(i18n.Context(t.Context(), lang, nil, now), &out); err != nil {
		t.Fatal(err)
	}
	doc, err := goquery.NewDocumentFromReader(strings.NewReader(out.String()))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "⟦") {
		t.Errorf("a message is missing: %s", out.String()[strings.Index(out.String(), "⟦"):][:40])
	}
	if n := doc.Find("[style], style:not(svg style), [onclick], script:not([src])").Length(); n != 0 {
		t.Errorf("%d elements that the content policy blocks", n)
	}
	return doc
}

func text(s *goquery.Selection) string { return strings.Join(strings.Fields(s.First().Text()), " ") }

func page(role string) views.Page {
	return views.Page{
		Title: "Title", Nav: "quarantine", User: views.User{Name: "anna", Display: "Anna Jansen", Role: role},
		Integration: "care", Integrations: []string{"care", "feeds"},
		Counts: map[string]views.Count{"quarantine": {N: 1237, Known: true}, "pairs": {}},
		Now:    now, Lang: "nl", Theme: "dark", Keys: true, Path: "/quarantine?i=care&state=open&after=9",
		LiveURL: "/stream/quarantine",
		Banners: []views.Banner{{Tone: views.ToneWarn, Text: "Teruggedraaid", Href: "/rollbacks/5", LinkText: "Bekijk"}},
		Flashes: []views.Flash{{Tone: views.ToneOK, ID: "users.created", Args: []string{"Name", "bob"}}},
	}
}

func TestLayout(t *testing.T) {
	doc := render(t, "nl", views.Layout(page("planner")))
	for selector, want := range map[string]string{
		"title":                            "Title · Sluis",
		".top a[aria-current=page]":        "Quarantaine 1.237",
		"#count-quarantine":                "1.237",
		"#count-pairs":                     "geen gegevens",
		"#live":                            "Live, bijgewerkt 06:40:12 +01:00",
		".banner.warn":                     "◆ Teruggedraaid Bekijk",
		".flash.ok":                        "● bob kan zich nu aanmelden.",
		"#integration option[selected]":    "care",
		"form[action='/profile/language']": "English",
		"a.skip":                           "Naar de inhoud",
	} {
		if got := text(doc.Find(selector)); got != want {
			t.Errorf("%s = %q, want %q", selector, got, want)
		}
	}
	for selector, want := range map[string]int{
		"main#main": 1, "header.top": 1, "nav[aria-label]": 1, "a[data-jump]": 8, "a[href^='/users']": 0,
		"a[href='/quarantine?i=care']": 1, "html[lang=nl][data-theme=dark][data-keys=on]": 1,
		"#integration ~ input[name=state][value=open]": 1, "#integration ~ input[name=after]": 0,
		"form[action='/signout'][method=post]": 1, "input[name=back][value='/quarantine?i=care&state=open&after=9']": 2,
	} {
		if got := doc.Find(selector).Length(); got != want {
			t.Errorf("%d of %s, want %d", got, selector, want)
		}
	}
	if n := render(t, "en", views.Layout(page("admin"))).Find("a[href^='/users']").Length(); n != 1 {
		t.Errorf("an administrator sees %d links to the users", n)
	}
	if n := render(t, "en", views.Layout(views.Page{Lang: "en"})).Find("header.top, [data-jump]").Length(); n != 0 {
		t.Errorf("without a person the page has %d parts of the navigation", n)
	}
}

func TestSignInPage(t *testing.T) {
	doc := render(t, "nl", views.SignIn(views.SignInPage{
		Page: views.Page{Lang: "nl"}, Next: "/pairs", OtherLang: "/signin?lang=en", Name: `a"b`, Failure: "signin.wrong",
	}))
	if got := text(doc.Find("#signin-error[role=alert]")); got != "Naam of wachtwoord klopt niet." {
		t.Errorf("failure = %q", got)
	}
	if got, _ := doc.Find("#name").Attr("value"); got != `a"b` {
		t.Errorf("name = %q", got)
	}
	if n := doc.Find("#password[value]").Length(); n != 0 {
		t.Error("the password comes back")
	}
	if n := doc.Find("label[for=name], label[for=password], a[lang=en][href='/signin?lang=en']").Length(); n != 3 {
		t.Errorf("%d labels and links", n)
	}
}

func TestUsersPage(t *testing.T) {
	doc := render(t, "en", views.Users(views.UsersPage{
		Page:  page("admin"),
		Roles: []string{"viewer", "oncall", "planner", "admin"},
		Users: []views.UserRow{
			{ID: 1, Name: "anna", Display: "Anna", Role: "admin", Self: true},
			{ID: 2, Name: "bob", Display: "Bob", Role: "viewer", Disabled: true},
			{ID: 3, Name: "carl", Display: "Carl", Role: "oncall"},
		},
		New: views.NewUserForm{Name: "dora", Display: "Dora", Role: "planner"}, Failure: "users.err_taken",
	}))
	for selector, want := range map[string]int{
		"#user-1 button[disabled][aria-describedby=self-1]": 1,
		"#user-2 .st.warn":                                              1,
		"#user-2 input[name=disabled][value=no]":                        1,
		"#user-3 form[action='/users/3/disabled'] input[value=yes]":     1,
		"#user-3 option[selected][value=oncall]":                        1,
		"#new-role option[selected][value=planner]":                     1,
		"#new-name[value=dora]":                                         1,
		"#users-error[role=alert]":                                      1,
		"form[action='/users/3/password'] input[type=password]":         1,
		"input:not([type=hidden]):not([id]), select:not([id]), #self-3": 0,
	} {
		if got := doc.Find(selector).Length(); got != want {
			t.Errorf("%d of %s, want %d", got, selector, want)
		}
	}
}

func TestProfilePage(t *testing.T) {
	p := page("viewer")
	doc := render(t, "nl", views.Profile(views.ProfilePage{Page: p, Lang: "nl", Theme: "dark", Keys: true}))
	if n := doc.Find("#lang option[selected][value=nl], #theme option[selected][value=dark], #keys-on[checked]").Length(); n != 3 {
		t.Errorf("%d of 3 settings are shown as they are", n)
	}
}

func TestErrorPage(t *testing.T) {
	e := views.ErrorPage{Page: page("viewer"), Status: 500, Text: "Zin.", RequestID: "abc123"}
	doc := render(t, "nl", views.Error(e))
	if got := text(doc.Find("main [role=alert]")); got != "▲ Dit is niet geluktZin.Fout abc123. Geef dit nummer door als u om hulp vraagt.Naar het overzicht" {
		t.Errorf("error = %q", got)
	}
	e.SignIn = true
	fragment := render(t, "nl", views.ErrorFragment(e))
	if fragment.Find("a[href='/signin']").Length() != 1 || fragment.Find("header").Length() != 0 {
		t.Error("the fragment does not lead to signing in, or holds a whole page")
	}
}

func TestParts(t *testing.T) {
	doc := render(t, "en", views.Countdown(now.Add(8*time.Second)))
	if got := text(doc.Find("[data-until='2025-10-26T05:40:20Z']")); got != "in 8 s" {
		t.Errorf("countdown = %q", got)
	}
	for kind, want := range map[string]string{"crit": "▲ Act now", "warn": "◆ Check", "ok": "● In range", "unk": "? No data"} {
		mark := views.Mark{Tone: kind, Text: want[strings.Index(want, " ")+1:]}
		if got := text(render(t, "en", views.StateMark(mark)).Find(".st." + kind)); got != want {
			t.Errorf("%s = %q", kind, got)
		}
	}
	swap := render(t, "en", views.Swap(`a"b`))
	if got, _ := swap.Find("hx-partial[hx-swap=outerMorph]").Attr("hx-target"); got != `#a"b` {
		t.Errorf("swap target = %q", got)
	}
	if n := render(t, "en", views.Stream("/stream/dashboard")).Find("#stream[hx-swap=none]").Length(); n != 1 {
		t.Error("no stream element")
	}
}
