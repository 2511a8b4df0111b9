package handlers

import (
	"errors"
	"net/http"
	"net/url"

	"sluis/views"
	"sluis/web"
)

// SignIn is how a person gets in and out.
type SignIn struct {
	Accounts *web.Accounts
	Attempts *web.Attempts
}

// Routes returns the routes of sign-in and sign-out.
func (h SignIn) Routes() []web.Route {
	return []web.Route{
		{Method: http.MethodGet, Path: "/signin", Name: "signin.show", Public: true, Handler: h.show},
		{Method: http.MethodPost, Path: "/signin", Name: "signin", Public: true, Handler: h.signIn},
		{Method: http.MethodPost, Path: "/signout", Name: "signout", Allow: web.Everyone, Handler: h.signOut},
	}
}

func (h SignIn) show(c *web.Context) error {
	if c.User.ID != 0 {
		return c.Redirect(c.QueryParam("next"))
	}
	return c.Render(http.StatusOK, views.SignIn(signInPage(c, c.QueryParam("next"))))
}

func (h SignIn) signIn(c *web.Context) error {
	form, err := c.Form()
	if err != nil {
		return err
	}
	name, next := form.Get("name"), form.Get("next")
	if !h.Attempts.Allow(c.Now, name, c.RealIP()) {
		c.Response().Header().Set("Retry-After", "60")
		return refuseSignIn(c, http.StatusTooManyRequests, name, next, "signin.limited")
	}
	user, err := h.Accounts.SignIn(c.Ctx(), name, form.Get("password"), c.RealIP())
	if errors.Is(err, web.ErrSignIn) {
		return refuseSignIn(c, http.StatusUnauthorized, name, next, "signin.wrong")
	}
	if err != nil {
		return err
	}
	if err := c.SignIn(user); err != nil {
		return err
	}
	return c.Redirect(next)
}

func (h SignIn) signOut(c *web.Context) error {
	if err := h.Accounts.SignedOut(c.Ctx(), c.User); err != nil {
		return err
	}
	if err := c.SignOut(); err != nil {
		return err
	}
	return c.Redirect("/signin")
}

func refuseSignIn(c *web.Context, status int, name, next, failure string) error {
	p := signInPage(c, next)
	p.Name, p.Failure = name, failure
	return c.Render(status, views.SignIn(p))
}

func signInPage(c *web.Context, next string) views.SignInPage {
	p := views.SignInPage{Page: c.Page("signin.title", ""), Next: web.LocalPath(next)}
	other := "nl"
	if p.Page.Lang == other {
		other = "en"
	}
	p.OtherLang = "/signin?" + url.Values{"lang": {other}, "next": {p.Next}}.Encode()
	return p
}
