package handlers

import (
	"net/http"

	"sluis/views"
	"sluis/web"
)

// Profile is the person's own settings.
type Profile struct {
	Accounts *web.Accounts
}

// Routes returns the routes of the profile.
func (h Profile) Routes() []web.Route {
	return []web.Route{
		{Method: http.MethodGet, Path: "/profile", Name: "profile.show", Allow: web.Everyone, Handler: h.show},
		{Method: http.MethodPost, Path: "/profile", Name: "profile", Allow: web.Everyone, Handler: h.save},
		{Method: http.MethodPost, Path: "/profile/language", Name: "profile.language", Allow: web.Everyone, Handler: h.language},
		{Method: http.MethodPost, Path: "/profile/theme", Name: "profile.theme", Allow: web.Everyone, Handler: h.theme},
	}
}

func (h Profile) show(c *web.Context) error {
	return c.Render(http.StatusOK, views.Profile(views.ProfilePage{
		Page: c.Page("profile.title", ""),
		Lang: c.User.Lang, Theme: c.User.Theme, Keys: c.User.Keys,
	}))
}

func (h Profile) save(c *web.Context) error {
	form, err := c.Form()
	if err != nil {
		return err
	}
	err = h.Accounts.SetProfile(c.Ctx(), c.User, form.Get("lang"), form.Get("theme"), form.Get("keys") == "on")
	if err != nil {
		return err
	}
	if err := c.Flash(views.Flash{Tone: views.ToneOK, ID: "profile.saved"}); err != nil {
		return err
	}
	return c.Redirect("/profile")
}

// language is the switch in the navigation; it leads back to where it stood.
func (h Profile) language(c *web.Context) error {
	form, err := c.Form()
	if err != nil {
		return err
	}
	if err := h.Accounts.SetProfile(c.Ctx(), c.User, form.Get("lang"), c.User.Theme, c.User.Keys); err != nil {
		return err
	}
	return c.Redirect(form.Get("back"))
}

// theme is the choice in the person's menu; it leads back to where it stood.
func (h Profile) theme(c *web.Context) error {
	form, err := c.Form()
	if err != nil {
		return err
	}
	if err := h.Accounts.SetProfile(c.Ctx(), c.User, c.User.Lang, form.Get("theme"), c.User.Keys); err != nil {
		return err
	}
	return c.Redirect(form.Get("back"))
}
